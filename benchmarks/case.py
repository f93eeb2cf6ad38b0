"""One graph and one setting, and the contenders that can be built for them."""

from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from torch_geometric.data import Data

from benchmarks.contender import Contender
from benchmarks.graphs import load_graph
from benchmarks.ours import Ours, make_task
from benchmarks.packages import OURS
from benchmarks.setting import Setting
from benchmarks.task import Task


@dataclass(eq=False)
class Case:
    """What is compared: everybody gets the same graph, weights and nodes.

    Attributes:
        data: The graph with masks.
        setting: What to train and how.
    """

    data: Data
    setting: Setting

    @cached_property
    def task(self) -> Task:
        """The problem in plain tensors, shared by the peers."""
        return make_task(self.data, self.setting)

    def sizes(self) -> dict[str, Any]:
        """What a line of results says of the case."""
        return {
            "nodes": self.data.num_nodes,
            "edges": self.data.num_edges,
            "backbone": self.setting.backbone,
            "hidden": self.setting.hidden,
            "tau": self.setting.tau,
        }

    def build(self, who: str) -> Contender:
        """Build a contender at the start of training.

        Args:
            who: One of ``CONTENDERS``, or ``"unrolled"`` for gsebo without replay.
        """
        return _BUILDERS[who](self)


def each_case(arguments: Namespace) -> Iterator[tuple[str, Case]]:
    """The cases that ``add_cases`` asked for, with the names of their datasets."""
    for dataset in arguments.datasets:
        data = load_graph(dataset)
        for backbone, hidden in product(arguments.backbones, arguments.hidden):
            setting = Setting(
                backbone=backbone,
                hidden=hidden,
                tau=arguments.tau,
                device=arguments.device,
            )
            yield dataset, Case(data, setting)


def _torch(case: Case) -> Contender:
    from benchmarks.peers.with_torch import TorchPeer

    return TorchPeer(case.task, case.setting)


def _torchopt(case: Case) -> Contender:
    from benchmarks.peers.with_torchopt import TorchOptPeer

    return TorchOptPeer(case.task, case.setting)


def _higher(case: Case) -> Contender:
    from benchmarks.peers.with_higher import HigherPeer

    return HigherPeer(case.task, case.setting)


_BUILDERS: dict[str, Callable[[Case], Contender]] = {
    OURS: lambda case: Ours(case.data, case.setting),
    "unrolled": lambda case: Ours(case.data, case.setting, engine="unrolled"),
    "torch": _torch,
    "torchopt": _torchopt,
    "higher": _higher,
}
