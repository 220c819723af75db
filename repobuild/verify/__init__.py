"""Proves a staged model on the bundled server, with the real tritonclient."""
