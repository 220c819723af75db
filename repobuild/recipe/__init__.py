"""Recipes: one YAML file that says what to convert, how to check it and how to serve it."""
