"""What is asked of a saved model, whole, damaged or made up."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gsebo import InvalidInput, load_model
from gsebo.files import checksum, read_tensors, sealed_json, write_tensors
from gsebo.methods import GraphClassifier
from gsebo.sparse import Pattern


def assert_refused(folder: Path, **arguments: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        load_model(folder, **arguments)
    message = str(caught.value)
    assert "\n" not in message.replace(str(folder), "")
    return message


def assert_same_model(left: GraphClassifier, right: GraphClassifier, data: Data):
    assert type(left) is type(right)
    for key in ("probability_", "transduction_", "strength_", "initial_strength_"):
        assert torch.equal(getattr(left, key), getattr(right, key))
        assert getattr(left, key).dtype == getattr(right, key).dtype
    assert left.history_ == right.history_
    assert (left.best_step_, left.seed_) == (right.best_step_, right.seed_)
    assert torch.equal(left.predict_proba(data), right.predict_proba(data))
    loops = left.loop_strength_, right.loop_strength_
    assert loops == (None, None) or torch.equal(*loops)


def facts_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "model.json").read_text())


def put_facts(folder: Path, facts: dict[str, Any]) -> None:
    """Write a description whose own checksum and those of all files are right."""
    facts = {key: value for key, value in facts.items() if key != "sha256"}
    if isinstance(facts.get("files"), dict):
        found = [name for name in facts["files"] if os.path.exists(folder / name)]
        facts["files"] |= {name: checksum(folder / name, "a file") for name in found}
    (folder / "model.json").write_bytes(sealed_json(facts))


def change_facts(folder: Path, **changes: Any) -> None:
    put_facts(folder, facts_of(folder) | changes)


def change_tensors(
    folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor] | None]
) -> None:
    """Change the numbers of a model in a way that no checksum tells."""
    path = folder / "model.safetensors"
    tensors, stored = read_tensors(path, "a model")
    write_tensors(path, change(tensors) or tensors, stored)
    put_facts(folder, facts_of(folder))


def everything(model: GraphClassifier) -> dict[str, Any]:
    """All that a model holds, by name: what is not here is not read from its files."""
    found: dict[str, Any] = {"method": type(model).__name__}
    _gather(found, "", model)
    return found


def same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    """Whether two models hold the same, bit for bit."""
    return left.keys() == right.keys() and all(
        torch.equal(each, right[name]) and each.dtype == right[name].dtype
        if isinstance(each, Tensor)
        else each == right[name]
        for name, each in left.items()
    )


def _gather(found: dict[str, Any], name: str, value: Any) -> None:
    if isinstance(value, Tensor | str | int | float | None):
        found[name] = value
    elif isinstance(value, np.ndarray):
        found[name] = torch.from_numpy(np.array(value))
    elif isinstance(value, nn.Module):
        _gather(found, name, dict(value.state_dict()))
    elif isinstance(value, Pattern):
        rows, columns = value.row_of_entry, value.column_of_entry
        found[f"{name}.rows"], found[f"{name}.columns"] = rows, columns
    elif isinstance(value, dict):
        for key, each in value.items():
            _gather(found, f"{name}.{key}", each)
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            _gather(found, f"{name}.{number}", each)
    elif isinstance(value, Data):
        _gather(found, name, value.to_dict())
    else:
        fields = {key: each for key, each in vars(value).items() if key != "replicas_"}
        _gather(found, name, fields)


def assert_flips_do_no_harm(
    folder: Path, draw: random.Random, places: Callable[[int], set[int]]
) -> None:
    """Any flipped byte of a saved model is refused in one sentence, or means nothing.

    Args:
        folder: The model, which is whole again in the end.
        draw: Chooses the bit of each byte.
        places: Which bytes of a file of so many.
    """
    whole = everything(load_model(folder))
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        for place in sorted(places(len(content))):
            damaged = bytearray(content)
            damaged[place] ^= 1 << draw.randrange(8)
            path.write_bytes(damaged)
            try:
                found = everything(load_model(folder))
            except InvalidInput as error:
                assert "\n" not in str(error)
            else:
                assert same(found, whole), f"byte {place} of {path.name}"
        path.write_bytes(content)
    assert same(everything(load_model(folder)), whole)
