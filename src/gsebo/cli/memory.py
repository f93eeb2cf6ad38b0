"""How much memory a run needed."""

import resource
import sys

import torch


def peak_memory_bytes(device: torch.device) -> int:
    """Most memory used at once, by the GPU if it did the work, else by the process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts kilobytes, macOS bytes.
    return peak if sys.platform == "darwin" else 1024 * peak
