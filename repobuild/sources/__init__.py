"""Trained models in their own frameworks: what vouches for them, and how they export and predict."""
