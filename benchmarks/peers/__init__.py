"""What one would write today: by hand in plain torch, or PyG layers under a library."""
