"""Graphs that are known by name."""
