"""Kernels of the tape in Triton."""
