"""Graphs that are generated."""
