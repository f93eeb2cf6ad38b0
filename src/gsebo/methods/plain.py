"""Parameters of an estimator in the form of JSON."""

import json
from typing import Any

import numpy as np
import torch

from gsebo.methods.sampler_files import sampler_facts
from gsebo.training.batches import Sampler


def plain_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters as JSON can hold them; what is code is only named."""
    plain: dict[str, Any] = {}
    for name, value in parameters.items():
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, torch.device):
            value = str(value)
        if isinstance(value, Sampler):
            value = sampler_facts(value) or value
        try:
            json.dumps(value)
            plain[name] = value
        except TypeError:
            kind = value if isinstance(value, type) else type(value)
            plain[name] = {"code": f"{kind.__module__}.{kind.__qualname__}"}
    return plain
