"""Immutable objects by key: a local folder now, object storage later."""
