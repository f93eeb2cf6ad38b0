"""A saved model with what is remembered beside it."""

from pathlib import Path

from gsebo.methods import GraphClassifier, load_model
from gsebo.methods.model_facts import ModelFacts, read_facts


def read_model(folder: Path) -> tuple[GraphClassifier, ModelFacts]:
    """Return the fitted estimator and what its files say of it."""
    return load_model(folder), read_facts(folder)
