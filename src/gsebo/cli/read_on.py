"""Where to read on after a refusal: one page of the documentation for each kind.

A refusal says what is wrong; its page says how it is meant. All pages are named here,
and nowhere else on the command line.
"""

from collections.abc import Iterator
from typing import Any

DOCUMENTATION = "https://gsebo.readthedocs.io/en/latest"

BY_KIND = {
    "attack": "guides/attacks.md#attacking-a-graph",
    "dataset": "guides/npz_format.md#graphs-by-name",
    "features": "guides/auto.md#how-it-chooses",
    "hypergradient": "how/hypergradients.md",
    "method": "how/methods.md",
    "metric": "guides/your_graph.md#which-score",
    "parameter": "api/methods.md#estimators",
    "preset": "how/methods.md#presets",
    "recipe": "guides/recipes.md",
    "sampler": "guides/batches.md#what-a-batch-is",
    "split": "guides/npz_format.md#splits",
}
"""Of a name that is not known, by what it was to be a name of."""

BY_OPTION = {
    "backbone": "how/methods.md#the-networks",
    "batch_size": "guides/batches.md",
    "batches_per_step": "guides/distributed.md#what-is-shared",
    "budget": "guides/attacks.md#attacking-a-graph",
    "memory": "guides/batches.md#graphs-on-disk",
    "method": BY_KIND["method"],
    "metric": BY_KIND["metric"],
    "noise": "guides/noise.md",
    "preset": BY_KIND["preset"],
    "sampler": BY_KIND["sampler"],
    "settings": BY_KIND["parameter"],
    "split": BY_KIND["split"],
}
"""Of an option that is used wrongly, by its own name."""

_TABLES = "guides/your_graph.md#two-tables"
_TYPES = "guides/your_graph.md#several-types-of-nodes-and-relations"
_FOLDER = "guides/graphs_on_disk.md#what-is-checked"
_CONVERSION = "guides/graphs_on_disk.md#from-an-edge-list-and-a-node-table"
BY_PLACE = {
    "gsebo.attacks": "guides/attacks.md",
    "gsebo.attacks.victim": "guides/attacks.md#what-can-be-a-victim",
    "gsebo.bilevel": "how/hypergradients.md",
    "gsebo.cli.fit:_check_folder": "guides/saved_models.md#checkpoints",
    "gsebo.cli.fit:_refuse_to_replace": "guides/saved_models.md#checkpoints",
    "gsebo.cli.folders:_refuse_options": "guides/batches.md#graphs-on-disk",
    "gsebo.cli.main:check_environment": "how/reproducibility.md#what-is-fixed",
    "gsebo.code_paths": "how/reproducibility.md#in-reproducible-mode",
    "gsebo.data.datasets": "guides/npz_format.md#graphs-by-name",
    "gsebo.data.datasets.registry:require_known_graph": "guides/your_graph.md",
    "gsebo.data.formats.convert:convert_tables": _CONVERSION,
    "gsebo.data.formats.folder": _FOLDER,
    "gsebo.data.formats.folder_check": _FOLDER,
    "gsebo.data.formats.manifest": _FOLDER,
    "gsebo.data.formats.npy_stream": _FOLDER,
    "gsebo.data.formats.npz": "guides/npz_format.md",
    "gsebo.data.formats.npz_archive": "guides/npz_format.md",
    "gsebo.data.formats.tables": _TABLES,
    "gsebo.data.formats.typed_tables": _TYPES,
    "gsebo.data.noise": "guides/noise.md",
    "gsebo.data.preparation": "guides/auto.md#how-it-chooses",
    "gsebo.data.relations": _TYPES,
    "gsebo.data.splits": BY_KIND["split"],
    "gsebo.data.validate": "guides/your_graph.md",
    "gsebo.data.validate:require_edge_values": "guides/edge_weights.md",
    "gsebo.distributed": "guides/distributed.md",
    "gsebo.experiments.engines": "guides/recipes.md",
    "gsebo.experiments.plan": "guides/recipes.md",
    "gsebo.experiments.recipe": "guides/recipes.md",
    "gsebo.experiments.result": "guides/recipes.md",
    "gsebo.experiments.store": "guides/recipes.md",
    "gsebo.experiments.survey": "guides/recipes.md",
    "gsebo.graph": "guides/your_graph.md",
    "gsebo.graph.hetero": _TYPES,
    "gsebo.graph.mapped": "guides/graphs_on_disk.md",
    "gsebo.graph.node_match": "guides/new_nodes.md",
    "gsebo.loader": BY_KIND["sampler"],
    "gsebo.memory": "how/speed.md#memory",
    "gsebo.methods.amortised": "how/amortised.md",
    "gsebo.methods.auto": "guides/auto.md",
    "gsebo.methods.auto.few_labels": "guides/few_labels.md#whose-labels-teach",
    "gsebo.methods.baselines": BY_KIND["method"],
    "gsebo.methods.controls": "how/methods.md#controls",
    "gsebo.methods.edges": "guides/exports.md#a-graph",
    "gsebo.methods.parameters": BY_KIND["parameter"],
    "gsebo.methods.saving": "guides/saved_models.md",
    "gsebo.metrics": BY_KIND["metric"],
    "gsebo.model": "guides/new_nodes.md",
    "gsebo.model.module": "guides/exports.md#a-network",
    "gsebo.model.layerwise": "guides/batches.md#limits",
    "gsebo.model.state": "guides/saved_models.md",
    "gsebo.nn": BY_OPTION["backbone"],
    "gsebo.nn.pyg.adapter": "guides/own_method.md#a-network",
    "gsebo.report.page": "guides/page.md",
    "gsebo.structure": "how/amortised.md#what-the-function-knows",
    "gsebo.suspects": "guides/suspects.md",
    "gsebo.tape.program": "how/speed.md#memory",
    "gsebo.training.checkpoint": "guides/saved_models.md#checkpoints",
}
"""Of anything else, by the module that refuses, perhaps one function of it.

What a package has here holds for all that is in it. Modules that many others use, such
as those that read files, have nothing: whoever called them knows what it is about.
"""

BY_COMMAND = {
    "": "start.md",
    "suspects": "guides/suspects.md",
    "fit": "start.md",
    "compare": "how/methods.md",
    "predict": "guides/new_nodes.md",
    "inspect": "guides/exports.md#a-table",
    "attack": "guides/attacks.md#attacking-a-graph",
    "run": "guides/recipes.md",
    "show": "guides/recipes.md",
    "report": "guides/page.md",
    "list": "how/methods.md",
    "results": "how/reproducibility.md#stored-trials-run-again",
    "results list": "guides/recipes.md",
    "results verify": "how/reproducibility.md#stored-trials-run-again",
    "results migrate": "guides/recipes.md",
    "data": "guides/npz_format.md#graphs-by-name",
    "data list": "guides/npz_format.md#graphs-by-name",
    "data get": "guides/npz_format.md#graphs-by-name",
    "data verify": "guides/npz_format.md#graphs-by-name",
    "data convert": _CONVERSION,
    "data generate": "guides/graphs_on_disk.md#from-other-graphs-and-drawn-ones",
}
"""Of all that is left, by the command that was called."""


def page_of(error: BaseException, command: str = "") -> str:
    """The page, and perhaps a section of it, that says how it is meant."""
    about = getattr(error, "about", None)
    if about in BY_KIND:
        return BY_KIND[about]
    if (option := _option(error)) in BY_OPTION:
        return BY_OPTION[option]
    for place in _places(error):
        if place in BY_PLACE:
            return BY_PLACE[place]
    # A word that is no command of a group may follow.
    known = command if command in BY_COMMAND else command.partition(" ")[0]
    return BY_COMMAND.get(known, BY_COMMAND[""])


def address(page: str) -> str:
    """Where a page is on the web.

    >>> address("guides/your_graph.md#two-tables").removeprefix(DOCUMENTATION)
    '/guides/your_graph.html#two-tables'
    """
    return f"{DOCUMENTATION}/{page.replace('.md', '.html', 1)}"


def _option(error: Any) -> str:
    """The option that is used wrongly, as typer's errors know it; or nothing."""
    if (parameter := getattr(error, "param", None)) is not None:
        return str(parameter.name)
    given = getattr(error, "option_name", None) or ""
    return str(given).lstrip("-").replace("-", "_")


def _places(error: BaseException) -> Iterator[str]:
    """Where an error was raised, from the inside out, each place and its packages."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    for frame in reversed(frames):
        module = frame.f_globals.get("__name__", "")
        yield f"{module}:{frame.f_code.co_name}"
        while module:
            yield module
            module = module.rpartition(".")[0]
