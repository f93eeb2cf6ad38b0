"""Presets hold parameters that the estimators take."""

import pytest

from gsebo import GSEBO, InvalidInput
from gsebo.backbone import BACKBONES
from gsebo.methods.presets import PRESETS, preset_parameters


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("backbone", BACKBONES)
def test_every_preset_is_usable(preset: str, backbone: str) -> None:
    parameters = preset_parameters(preset, backbone)
    GSEBO(backbone, **parameters).check_parameters()
    parameters["changed"] = True
    assert "changed" not in preset_parameters(preset, backbone)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_names_backbones_that_exist(preset: str) -> None:
    assert set(PRESETS[preset]) <= set(BACKBONES)


def test_a_backbone_that_a_preset_does_not_name() -> None:
    assert preset_parameters("paper", "GATv2") == {}


def test_an_unknown_preset() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'paper'"):
        preset_parameters("papers", "gcn")
