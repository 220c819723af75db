"""Backends: what runs a model. The seam is ``interface``; ``table`` finds them by name."""
