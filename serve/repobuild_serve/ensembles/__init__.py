"""Ensembles: models whose requests run through other models."""
