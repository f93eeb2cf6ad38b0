"""Graphs and tables in files."""
