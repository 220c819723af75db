"""Compilers turn a graph in normal form into what one kind of hardware runs."""
