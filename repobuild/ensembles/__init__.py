"""Several models joined to one: built step by step, checked and served as a whole."""
