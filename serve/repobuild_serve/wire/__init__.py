"""Tensor data on the wire: JSON and the binary extension, in both directions."""
