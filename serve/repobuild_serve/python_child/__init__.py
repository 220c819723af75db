"""What runs inside the process of a python model: the standard library and NumPy only.

The process may belong to another interpreter (EXECUTION_ENV_PATH), from Python 3.8 on, where none of the
server's packages is installed. ``start.py`` is its entry; it makes this package importable by its place, and
nothing in here may import anything else of the server.
"""
