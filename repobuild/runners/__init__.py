"""Runners ask an artifact in its own runtime, without a server."""
