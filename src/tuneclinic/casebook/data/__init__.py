"""Faults of the data, the template and the labels."""
