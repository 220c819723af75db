"""Models that take named tensors (PyTorch, ONNX): which axes are free, what is asked, and their graph."""
