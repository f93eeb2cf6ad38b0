"""Which versions a figure was computed with."""

import platform

import numpy
import torch
import torch_geometric

from gsebo.version import __version__


def versions() -> dict[str, str]:
    """Of this library and of those that decide what a fit computes."""
    return {
        "gsebo": __version__,
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }


def device_name(device: torch.device) -> str:
    """Name of the hardware, for example ``"cpu (x86_64)"``."""
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return f"{device.type} ({platform.machine()})"
