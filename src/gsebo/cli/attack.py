"""``gsebo attack``: a graph few of whose edges are changed so that a network fails."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from typer import Argument, Option

from gsebo.attacks.budget import read_budget
from gsebo.attacks.registry import ATTACKS, NODE_SETS
from gsebo.cli.fit import parameters_from, read_settings
from gsebo.cli.graph_options import GraphOptions, with_features, with_options
from gsebo.cli.options import (
    DataDir,
    Force,
    Json,
    Normalize,
    Quiet,
    Seed,
    require_new,
)
from gsebo.cli.output import messages, percent, print_json, print_table
from gsebo.data.datasets.registry import require_known_graph
from gsebo.errors import InvalidInput, escaped
from gsebo.files import check_writable
from gsebo.methods import METHODS
from gsebo.names import own_name

if TYPE_CHECKING:
    from torch import Tensor

    from gsebo.attacks import Attack, Perturbation
    from gsebo.graph.graph import Graph
    from gsebo.methods import GraphClassifier

_RANDOM = "random:10/20/70"


@with_options
def attack(
    graph: Annotated[
        str,
        Argument(
            metavar="GRAPH",
            help="A name, an edge list (CSV, TSV or Parquet), an .npz file or a "
            "graph folder.",
        ),
    ],
    *,
    kind: Annotated[
        str, Option(help="A name of [bold]gsebo list attacks[/bold].")
    ] = "prbcd",
    budget: Annotated[
        str,
        Option(
            metavar="COUNT|SHARE%",
            help="Most pairs that may change: a number, or a share of the undirected "
            "edges. For each node: a number, or a share of its degree.",
        ),
    ] = "5%",
    out: Annotated[Path, Option(help="The .npz file to write the attacked graph to.")],
    targets: Annotated[
        str | None,
        Option(
            metavar="|".join(NODE_SETS),
            help="The attacked nodes. By default test, or unlabelled where a graph has "
            "no test mask.",
        ),
    ] = None,
    per_node: Annotated[
        bool,
        Option(
            "--per-node",
            help="Attack each node on its own; the graph that is written has all of "
            "these changes.",
        ),
    ] = False,
    knows_labels: Annotated[
        bool,
        Option(
            "--knows-labels",
            help="The attacker knows all labels, test labels too. By default those of "
            "training and validation nodes, and what the victim predicts.",
        ),
    ] = False,
    method: Annotated[
        str | None,
        Option(help="Method to fit as the victim; by default vanilla, a plain GCN."),
    ] = None,
    model: Annotated[
        Path | None, Option(help="Folder of a saved model to attack instead.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        Option(
            "--set",
            metavar="NAME=VALUE",
            help="A parameter of the attack, such as epochs=300. Repeatable.",
        ),
    ] = None,
    split: Annotated[
        str | None,
        Option(help="Draw masks first, as for fit. By default the graph's own."),
    ] = None,
    seed: Seed = 0,
    device: Annotated[str, Option(help="auto, cpu or cuda.")] = "auto",
    data_dir: DataDir = None,
    normalize: Normalize = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
    tables: GraphOptions,
) -> None:
    """Change few edges of a graph so that a network goes wrong on it.

    The victim stays as it was fitted, and what it predicts before and after is told. To
    see what a method makes of the attacked graph, fit it on the file that is written.
    """
    messages.quiet = quiet
    require_known_graph(graph)
    tables.check_tables(graph)
    name = own_name("attack", kind, ATTACKS)
    _check(budget, out, targets, method, model, force)
    # Only now what needs torch: until here a slip is told at once.
    from gsebo.data.relations import refuse_types

    chosen = ATTACKS[name]
    given = parameters_from(read_settings(settings or (), [chosen]), chosen)
    if knows_labels:
        given["knows_labels"] = True
    attacker = chosen(**given)
    data = tables.load_graph(graph, data_dir=data_dir, normalize=normalize)
    refuse_types(
        data,
        escaped(graph, longest=200),
        "attacks know one of each",
        "a graph without them, or gsebo fit --noise false_typed:30, which adds false "
        "edges of each relation",
    )
    data = _with_masks(data, split, seed)
    victim = _Victim.of(model, method or "vanilla", data, seed, device)
    if victim.estimator is not None and victim.estimator.reads_features():
        data = with_features(data)
    done = _Done.of(attacker, data, victim, budget, targets, per_node, seed)
    facts = {
        "graph": graph,
        "kind": name,
        "budget": budget,
        "per_node": per_node or chosen.per_node,
        "targets": targets,
        "knows_labels": attacker.knows_labels,
        "seed": seed,
        "num_nodes": int(data.num_nodes),
        **done.facts(data, victim),
        "out": str(out),
    }
    _save(done, data, out, facts)
    if json:
        print_json(facts)
        return
    _print(facts)
    messages.note(f"The attacked graph is in {out}.")


def _check(
    budget: str,
    out: Path,
    targets: str | None,
    method: str | None,
    model: Path | None,
    force: bool,
) -> None:
    """Raise, before anything is computed, for what cannot be done."""
    read_budget(budget, 1)
    if targets is not None and targets not in NODE_SETS:
        raise InvalidInput(
            f"--targets {targets} given; expected one of: {', '.join(NODE_SETS)}."
        )
    if method is not None:
        own_name("method", method, METHODS)
        if model is not None:
            raise InvalidInput(
                f"--method {method} and --model {model} given; expected one of both."
            )
    if out.suffix != ".npz":
        raise InvalidInput(f"--out {out} given; expected a file that ends in .npz.")
    require_new(out, force=force)
    check_writable(out.parent)


def _with_masks(graph: "Graph", split: str | None, seed: int) -> "Graph":
    """The graph with masks: those that were asked for, its own, or random ones."""
    from gsebo.data import apply_split

    if split is None and "train_masks" in graph and "train_mask" not in graph:
        messages.note("The graph came with several splits; using file:0.")
        split = "file:0"
    masks = (f"{one}_mask" in graph for one in ("train", "val", "test"))
    if split is None and "y" in graph and not any(masks):
        messages.note(
            f"The graph came without masks; using the split {_RANDOM}, by the seed."
        )
        split = _RANDOM
    return graph if split is None else apply_split(graph, split, seed)


class _Victim(NamedTuple):
    """What is attacked: an estimator that is to be fitted, or was; or none at all."""

    name: str | None
    estimator: "GraphClassifier | None"
    is_fitted: bool

    @classmethod
    def of(
        cls, model: Path | None, method: str, graph: "Graph", seed: int, device: str
    ) -> "_Victim":
        from gsebo.methods import load_model

        if model is not None:
            return cls(str(model), load_model(model), True)
        if "y" not in graph:
            # Nothing can be fitted; some attacks do without.
            return cls(None, None, True)
        name = own_name("method", method, METHODS)
        made = METHODS[name].make(random_state=seed, device=device)
        made.check_parameters()
        return cls(name, made, False)

    def fitted(self, graph: "Graph") -> "GraphClassifier | None":
        """The estimator, fitted on a graph unless it was before."""
        if self.estimator is not None and not self.is_fitted:
            self.estimator.fit(graph)
        return self.estimator


class _Done(NamedTuple):
    """What an attack has done: to all nodes together, or to each on its own."""

    whole: "Perturbation"
    each: "dict[int, Perturbation] | None"
    nodes: "Tensor"
    labels: "Tensor | None"  # What the attacker took for classes.
    seconds: float

    @classmethod
    def of(
        cls,
        attacker: "Attack",
        graph: "Graph",
        victim: _Victim,
        budget: str,
        targets: str | None,
        per_node: bool,
        seed: int,
    ) -> "_Done":
        import torch

        from gsebo.attacks import Perturbation
        from gsebo.attacks.base import attacked_nodes, known_nodes

        nodes = attacked_nodes(graph, targets)
        network = victim.fitted(graph)
        began = time.perf_counter()
        options: dict[str, Any] = {
            "budget": budget,
            "victim": network,
            "nodes": nodes,
            "random_state": seed,
        }
        each = None
        if per_node or attacker.per_node:
            each = attacker.attack_each(graph, **options)
            whole = Perturbation.union(each.values())
        else:
            whole = attacker.attack(graph, **options)
        seconds = time.perf_counter() - began
        labels = None
        if network is not None:
            labels = network.predict(graph)
            if "y" in graph:
                known = known_nodes(graph, every=attacker.knows_labels)
                labels = torch.where(known, network.labels_of(graph), labels)
        return cls(whole, each, nodes, labels, seconds)

    def facts(self, graph: "Graph", victim: _Victim) -> dict[str, Any]:
        """What is told of it."""
        before, after = self._accuracy(graph, victim.estimator)
        return {
            "attacked_nodes": len(self.nodes),
            "added": len(self.whole.added),
            "removed": len(self.whole.removed),
            "added_between_classes": self._between(self.whole.added),
            "removed_between_classes": self._between(self.whole.removed),
            "victim": victim.name,
            "accuracy_before": before,
            "accuracy_after": after,
            "seconds": self.seconds,
        }

    def _between(self, pairs: "Tensor") -> float | None:
        """Share of pairs whose ends the attacker took for two classes."""
        if self.labels is None or not len(pairs):
            return None
        one, other = self.labels[pairs].unbind(1)
        return float((one != other).double().mean())

    def _accuracy(
        self, graph: "Graph", network: "GraphClassifier | None"
    ) -> tuple[float | None, float | None]:
        """Of the victim on the attacked nodes, each as it was attacked."""
        if network is None or "y" not in graph:
            return None, None
        labels = network.labels_of(graph)
        nodes = self.nodes[labels[self.nodes] >= 0]
        if not len(nodes):
            return None, None
        before = network.predict(graph)
        if self.each is None:
            after = network.predict(self.whole.apply(graph))
        else:
            after = before.clone()
            for node in nodes.tolist():
                after[node] = network.predict(self.each[node].apply(graph))[node]
        right = [(one == labels)[nodes].double().mean() for one in (before, after)]
        return float(right[0]), float(right[1])


def _save(done: _Done, graph: "Graph", out: Path, facts: dict[str, Any]) -> None:
    from gsebo.data import save_npz

    told = ("graph", "kind", "budget", "per_node", "targets", "knows_labels", "seed")
    meta = graph.meta if isinstance(graph.meta, dict) else {}
    noted = {**meta, "attack": {name: facts[name] for name in told}}
    # What may not be replaced was refused before.
    save_npz(done.whole.apply(graph), out, noted, overwrite=True)


def _print(facts: dict[str, Any]) -> None:
    rows: list[tuple[str, object]] = [("attacked nodes", facts["attacked_nodes"])]
    for what in ("added", "removed"):
        between = facts[f"{what}_between_classes"]
        share = "" if between is None else f", {percent(between)} between classes"
        rows.append((f"pairs {what}", f"{facts[what]}{share}"))
    if facts["accuracy_before"] is not None:
        change = f"{percent(facts['accuracy_before'])} before, "
        change += f"{percent(facts['accuracy_after'])} after"
        rows.append((f"accuracy of {facts['victim']}", change))
    rows.append(("seconds", f"{facts['seconds']:.1f}"))
    each = " for each node" if facts["per_node"] else ""
    print_table(
        f"{facts['kind']} on {facts['graph']}, budget {facts['budget']}{each}",
        ("", ""),
        rows,
    )
