"""A saved model with what is remembered beside it."""

from pathlib import Path
from typing import Any

from gsebo.files import read_json
from gsebo.methods import GraphClassifier, load_model


def read_model(folder: Path) -> tuple[GraphClassifier, dict[str, Any]]:
    """Return the fitted estimator and the contents of its ``model.json``."""
    model = load_model(folder)
    return model, read_json(folder / "model.json", "a model written by gsebo")
