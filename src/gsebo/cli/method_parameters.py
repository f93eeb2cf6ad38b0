"""The parameters of a method, from its preset and what was typed."""

from collections.abc import Sequence
from typing import Any

from gsebo.cli.plan import Plan
from gsebo.cli.settings import Setting, parameters_from
from gsebo.methods import METHODS
from gsebo.methods.presets import preset_parameters


def parameters_of(
    plan: Plan, method: str, settings: Sequence[Setting]
) -> dict[str, Any]:
    """Put together the parameters of a method.

    Args:
        plan: The options.
        method: Its registered name.
        settings: What was typed as ``--set``.
    """
    estimator = METHODS[method].estimator
    given = parameters_from(settings, estimator)
    taken = estimator().get_params(deep=False)
    own = {"backbone": plan.backbone or taken["backbone"], "device": plan.device}
    if plan.preset is None:
        return {**given, **own}
    preset = preset_parameters(
        plan.preset, own["backbone"], method=method, dataset=plan.dataset
    )
    preset = {name: v for name, v in preset.items() if name in taken}
    for name in preset.keys() & given.keys():
        if isinstance(preset[name], dict) and isinstance(given[name], dict):
            given[name] = {**preset[name], **given[name]}
    return {**preset, **given, **own}
