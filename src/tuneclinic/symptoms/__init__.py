"""Symptoms: what a person sees, one a file."""
