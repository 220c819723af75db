"""Tells what files and repositories hold, without running anything of them."""
