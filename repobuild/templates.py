"""Finds and renders the Jinja2 templates of what repobuild writes."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any


def render(template: str, context: Mapping[str, Any]) -> str:
    """Render one of the built-in templates.

    An undefined name in a template is an error, never empty text. The filter ``pbtxt`` quotes a string for
    protobuf's text format.

    Args:
        template: Its file name.
        context: Its values.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_load),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - the output is protobuf text, not HTML; the pbtxt filter quotes
    )
    environment.filters["pbtxt"] = _pbtxt
    return environment.get_template(template).render(context)


def _load(name: str) -> str | None:
    resource = files("repobuild_templates").joinpath(name)
    return resource.read_text(encoding="utf-8") if resource.is_file() else None


def _pbtxt(value: str) -> str:
    from google.protobuf import text_encoding

    quoted: str = text_encoding.CEscape(value, True)
    return f'"{quoted}"'
