"""Models written in Python, each instance in a process of its own (Triton contract, python backend)."""
