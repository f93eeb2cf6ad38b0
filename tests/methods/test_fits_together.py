"""One, two or four processes find the same, to the last bit."""

from pathlib import Path

import pytest
import torch

from distributed.gloo_processes import new_store, run_members
from gsebo.files import read_tensors
from methods.fits_together import FITS, IN_SHARES, fit_all, fitted


@pytest.mark.exact
@pytest.mark.parametrize("size", [2, 4])
def test_several_processes_find_what_one_finds(size: int, tmp_path: Path) -> None:
    # Where strengths are kept makes no difference to one process.
    alone = {name: fitted(name.removesuffix(IN_SHARES)) for name in FITS}
    assert len(alone["gsebo"].history_) == 5
    assert run_members(new_store(), size, fit_all, tmp_path) == [0] * size
    for name, one in alone.items():
        found, _ = read_tensors(tmp_path / f"{name}.safetensors", "strengths")
        assert not torch.equal(one.strength_, one.initial_strength_)
        assert torch.equal(found["strength_"], one.strength_)
        assert torch.equal(found["probability_"], one.probability_)
