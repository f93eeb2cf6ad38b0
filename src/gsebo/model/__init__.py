"""A fitted model: predictions, new nodes, graphs on disk, saving and loading."""
