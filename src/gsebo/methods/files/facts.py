"""What the description of a saved model says, and what follows from it alone.

``model.json`` names every other file with its checksum, holds a checksum of itself, and
says of every part of the model what it consists of. Nothing is read, built or allocated
before all that has been checked.
"""

import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch
from msgspec import to_builtins
from torch import nn

from gsebo.errors import InputWarning, InvalidInput, escaped
from gsebo.files import checksum, write_atomically
from gsebo.lookup import lookup
from gsebo.methods.base import GraphClassifier
from gsebo.methods.outcome import Choice
from gsebo.methods.parameters import code_in, parameter_from, plain_parameters
from gsebo.methods.registry import METHODS
from gsebo.schema import (
    Count,
    Name,
    Record,
    Seed,
    Sha256,
    Size,
    Text,
    plain_as,
    read_sealed,
    sealed_json,
)
from gsebo.training import StepRecord
from gsebo.version import __version__

FORMAT = 2
FACTS, TENSORS, OWN = "model.json", "model.safetensors", "own.npy"
WHAT = "a model written by gsebo"


class ModelFacts(Record, frozen=True, kw_only=True):
    """What every saved model says.

    Attributes:
        format: Of which kind the description is.
        method: Name of the method.
        parameters: Of the estimator, as JSON can hold them.
        dataset: Name or path of the graph, if it is remembered.
        seed: That was used.
        dtype: Type of the numbers that were learned.
        num_features: Number of columns that the network reads.
        num_classes: Number of classes.
        best_step: Number of the step that was kept.
        history: One record for each outer step.
        versions: Of the packages that wrote it.
        files: Checksum of every other file of the model.
    """

    format: int
    method: Name
    parameters: dict[Name, Any]
    dataset: Text | None
    seed: Seed
    dtype: Literal["float32", "float64"]
    num_features: Count
    num_classes: Count
    best_step: Size
    history: list[StepRecord]
    versions: dict[Name, Name]
    files: dict[Literal["model.safetensors", "own.npy"], Sha256]

    @property
    def torch_dtype(self) -> torch.dtype:
        """Type of the numbers that were learned."""
        return torch.float64 if self.dtype == "float64" else torch.float32


class MemberFacts(Record, frozen=True, kw_only=True):
    """One of several networks whose mean predicts.

    Attributes:
        num_edges: Number of edges of its own graph.
        num_layers: Layers with strengths of their own; 0 where all share them.
        weights: Whether it has weights of its own.
    """

    num_edges: Size
    num_layers: Size
    weights: bool


class ScorerFacts(Record, frozen=True, kw_only=True):
    """The function that scores edges that the fit never saw.

    Attributes:
        centred: Whether the features of the fit were dense, and have a centre.
        guess: Whether it looks at guesses from features alone.
        first: Whether at those of a first network, too.
    """

    centred: bool
    guess: bool
    first: bool


class GraphModelFacts(ModelFacts, frozen=True, kw_only=True):
    """A model of a graph that was in memory.

    Attributes:
        kind: What tells it from others.
        num_nodes: Number of nodes.
        num_edges: Number of edges, each once and without self-loops.
        num_given_edges: Number of edges that the user gave.
        num_layers: Layers with strengths of their own; 0 where all share them.
        learned: Whether the strengths were learned for this very graph.
        row_hashes: Whether the nodes are known by their features.
        node_ids: Whether the nodes are known by names of the user.
        members: Networks whose mean predicts; none where there is one network.
        scorer: What scores new edges, if anything does.
        preparation: Name of what is done to features, if anything is.
        choice: What an automatic fit decided.
    """

    kind: Literal["graph"] = "graph"
    num_nodes: Count
    num_edges: Size
    num_given_edges: Size
    num_layers: Size
    learned: bool
    row_hashes: bool
    node_ids: bool
    members: list[MemberFacts]
    scorer: ScorerFacts | None
    preparation: Name | None
    choice: Choice | None


class FolderModelFacts(ModelFacts, frozen=True, kw_only=True):
    """A model of a graph folder.

    Attributes:
        kind: What tells it from others.
        graph: Checksum of the graph of the fit.
        own: Shape of what each entry of that graph has of its own, if it has anything.
        scorer: What scores edges, if anything does.
    """

    kind: Literal["folder"] = "folder"
    graph: Sha256
    own: tuple[Count, ...] | None
    scorer: ScorerFacts | None


_KINDS: dict[Any, type[GraphModelFacts] | type[FolderModelFacts]] = {
    "graph": GraphModelFacts,
    "folder": FolderModelFacts,
}


def common_facts(
    estimator: GraphClassifier, dataset: str | None, folder: Path, *files: str
) -> dict[str, Any]:
    """What the description of any model says, once its other files are written.

    Args:
        estimator: A fitted one.
        dataset: Name or path of the graph, to be remembered.
        folder: Where the files are.
        *files: Their names.
    """
    return {
        "format": FORMAT,
        "method": method_name(estimator),
        "parameters": plain_parameters(estimator.get_params(deep=False)),
        "dataset": _rememberable(dataset),
        "seed": estimator.seed_,
        "num_classes": estimator.num_classes_,
        "best_step": estimator.best_step_,
        "history": estimator.history_,
        "versions": {
            "gsebo": __version__,
            "torch": str(torch.__version__),
            "torch_geometric": version("torch_geometric"),
        },
        "files": {name: checksum(folder / name, WHAT) for name in files},
    }


def _rememberable(dataset: str | None) -> str | None:
    """A name that JSON can hold; one of bytes that are no text cannot be written."""
    try:
        (dataset or "").encode()
    except UnicodeEncodeError:
        return None
    return dataset


def dtype_name(dtype: torch.dtype) -> Literal["float32", "float64"]:
    """The name of a type of numbers that networks learn in."""
    return "float64" if dtype == torch.float64 else "float32"


def write_facts(folder: Path, facts: ModelFacts) -> None:
    """Write the description, which makes a model of the files beside it."""
    write_atomically(folder / FACTS, sealed_json(to_builtins(facts)))


def read_facts(folder: Path) -> GraphModelFacts | FolderModelFacts:
    """Read and check the description of a model, nothing else."""
    path = folder / FACTS
    content = read_sealed(path, WHAT, of_format=FORMAT)
    kind = _KINDS.get(str(content.get("kind")))
    if kind is None:
        raise InvalidInput(
            f"{escaped(str(path))} describes an unknown kind of model; expected one "
            f"of: {', '.join(_KINDS)}."
        )
    return plain_as(kind, content, f"{path}", WHAT)


def check_files(facts: ModelFacts, folder: Path, *names: str) -> None:
    """Raise unless the files of a model are those that its description means.

    Args:
        facts: The description.
        folder: Where the files are.
        *names: All that there have to be.
    """
    if facts.files.keys() != {*names}:
        raise InvalidInput(
            f"{escaped(str(folder / FACTS))} names the files "
            f"{', '.join(facts.files) or 'none'}; expected {' and '.join(names)}."
        )
    for name, expected in facts.files.items():
        if checksum(folder / name, WHAT) != expected:
            raise InvalidInput(
                f"{escaped(str(folder / name))} does not belong to "
                f"{escaped(str(folder / FACTS))}, or is damaged; expected the files of "
                "one save."
            )


def estimator_from(
    method: str, parameters: dict[str, Any], backbone: type | nn.Module | None
) -> GraphClassifier:
    """The estimator of a description, with parameters that a fit would accept.

    Args:
        method: Its name.
        parameters: As JSON can hold them.
        backbone: The network, where that was code.
    """
    info = lookup("method", method, METHODS)
    if backbone is not None:
        parameters = parameters | {"backbone": backbone}
        if isinstance(backbone, nn.Module):
            parameters["backbone_options"] = None
    code = {name: said for name, each in parameters.items() if (said := code_in(each))}
    for name in code.keys() & {"backbone", "backbone_options"}:
        raise InvalidInput(
            f"the model was fitted with {name}={code[name]}, which is code and not in "
            "the file; expected load_model(folder, backbone=...) with the network."
        )
    if code:
        warnings.warn(
            f"the model was fitted with {' and '.join(code)} given as code, which is "
            "not in the file: the default takes its place if it is fitted again.",
            InputWarning,
            stacklevel=4,
        )
    known = {
        name: parameter_from(value)
        for name, value in parameters.items()
        if name not in code
    }
    try:
        estimator = info.estimator(**known)
    except TypeError as error:
        raise InvalidInput(
            f"the model has parameters that {method} does not take "
            f"({escaped(str(error), longest=200)})."
        ) from error
    estimator.check_parameters()
    return estimator


def method_name(model: GraphClassifier) -> str:
    """Under which name the method of an estimator is registered."""
    for name, info in METHODS.items():
        if info.estimator is type(model):
            return name
    raise InvalidInput(
        f"{type(model).__name__} is not registered; expected one of {list(METHODS)}."
    )
