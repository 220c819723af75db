"""The folder that models find ``triton_python_backend_utils`` in."""
