"""Edges, features and labels that are made wrong on purpose."""
