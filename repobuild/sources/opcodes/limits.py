"""What one model file may make the scan of it do and keep."""

from __future__ import annotations

MAX_DEPTH = 64
"""Pickles inside the object arrays of pickles."""

MAX_OPCODES = 20_000_000
"""Opcodes of a file, nested pickles included. A forest of 500 trees has 82 thousand in a plain pickle, since
its trees are arrays; a text vectorizer has three a word."""

MAX_HELD = 4_000_000
"""Entries of all stacks and memos at one time."""

MAX_KEPT_BYTES = 1 << 28
"""Memory that texts, tuples, dictionaries and objects may take in a whole scan, freed or not."""

MAX_TEXT_BYTES = 4096
"""Longest text, or line of digits, that is looked at; a longer one cannot be the name of an import."""

MAX_ITEMS = 64
"""Longest tuple, and longest binary integer in bytes, that is looked at."""

CHECK_EVERY = 1024
"""Opcodes between two looks at the limits."""
