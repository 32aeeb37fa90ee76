"""Faults of the evaluation."""
