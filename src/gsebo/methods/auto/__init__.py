"""An estimator that chooses among the others by held-out labels."""
