"""Writes model folders for Triton: configuration, warm-up, versions, and the step into a repository."""
