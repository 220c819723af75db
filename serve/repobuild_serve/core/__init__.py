"""What front ends and model schedulers exchange, and what is counted."""
