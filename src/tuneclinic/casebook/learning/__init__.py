"""Faults of the optimisation and of what is trained."""
