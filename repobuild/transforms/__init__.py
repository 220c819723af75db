"""Changes of a graph's numbers or nodes: precision, quantisation, optimisation, and where a change shows."""
