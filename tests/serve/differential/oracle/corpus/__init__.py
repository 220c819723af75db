"""The requests, as data."""
