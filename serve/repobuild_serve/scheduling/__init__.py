"""Which requests run together, when, and on which instance."""
