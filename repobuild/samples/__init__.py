"""Real input rows: read from a file, fitted to the model's inputs, and the edge rows made from them."""
