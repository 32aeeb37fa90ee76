"""Faults between the trained and the served model."""
