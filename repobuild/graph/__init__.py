"""What repobuild does to ONNX graphs between the exporter and the artifact."""
