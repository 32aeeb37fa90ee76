"""Readers: one file a format. Adding a file registers its reader."""
