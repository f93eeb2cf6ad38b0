"""What one would write today: PyG layers under a differentiable optimiser."""
