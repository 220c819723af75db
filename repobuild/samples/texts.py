"""Other forms of a text that real data will hold, such as upper case and runs of white space."""

from __future__ import annotations

from collections.abc import Callable, Sequence

FORMS: dict[str, Callable[[Sequence[str]], str]] = {
    "runs of white space": lambda words: "  " + " \n\t ".join(words) + "\n",
    "other case": lambda words: " ".join(words).swapcase(),
    "punctuation": lambda words: "-".join(words) + "! (" + ", ".join(words) + ".)",
    "letters beyond ASCII": lambda words: " ".join(f"{w}é É{w}" for w in words) + " 日本語",
    "combining marks": lambda words: " ".join(f"{w}\u0301" for w in words),
    "digits and underscores": lambda words: " ".join(f"{w}_1 {w}2 3" for w in words),
    "stop words": lambda words: "the " + " the ".join(words),
    "one-letter words": lambda words: " a ".join(words) + " b",
}
"""Makes each form from the words of a sample."""

MOST_WORDS = 64


def text_forms(text: str) -> dict[str, str]:
    """The other forms of a text, by what each of them tries.

    Args:
        text: A sample; the forms hold its first words.
    """
    words = text.split()[:MOST_WORDS]
    return {name: make(words) for name, make in FORMS.items()} if words else {}
