"""Cases that ONNX Runtime itself answers otherwise than ONNX prescribes, each with what is known of it."""

KNOWN: dict[str, str] = {}
