"""Renderers of a diagnosis."""
