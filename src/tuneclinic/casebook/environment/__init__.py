"""Faults of the machine, the versions and the launch."""
