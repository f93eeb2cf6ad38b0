"""How much memory a run needed."""

import pytest
import torch

from gsebo.experiments.fit import reset_peak_memory


def test_forgetting_peaks_asks_for_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("a worker that was forked cannot use CUDA")

    # Whatever other tests have done on a machine with a GPU.
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    for name in ("is_available", "device_count", "init", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, asked)
    reset_peak_memory()
