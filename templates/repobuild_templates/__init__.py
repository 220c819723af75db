"""Jinja2 templates of what repobuild writes; data only, found with importlib.resources."""
