"""HGSL: every relation of a graph with types gets a graph of its own to learn."""
