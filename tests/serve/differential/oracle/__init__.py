"""The same requests to the real Triton and to the bundled server, and their answers side by side."""
