"""The child process in which a model file is loaded, exported and asked."""
