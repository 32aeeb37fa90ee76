"""Probes: ways of gathering evidence. Reading files costs nothing; experiments train."""
