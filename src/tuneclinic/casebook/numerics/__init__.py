"""Faults of precision and of kernels."""
