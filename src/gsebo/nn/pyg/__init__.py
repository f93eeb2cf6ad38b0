"""Networks of PyG, with one strength per edge."""
