"""ONNX's own backend test cases, through the builder and the bundled server."""
