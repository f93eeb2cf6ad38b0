"""GAug: a graph that an auto-encoder changes once, or in every step."""
