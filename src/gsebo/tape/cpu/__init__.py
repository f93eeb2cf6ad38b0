"""Kernels of the tape in numba."""
