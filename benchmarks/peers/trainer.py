"""Inner training with the strengths of a task, and of networks of PyG layers."""

from abc import ABC, abstractmethod
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.peers.networks import Network
from benchmarks.setting import Setting
from benchmarks.task import Task


class Trainer(ABC):
    """Trains a network with the strengths of a task.

    Args:
        task: The graph and where training starts.
        setting: What to train and how.
    """

    def __init__(self, task: Task, setting: Setting) -> None:
        self.task, self.setting = task, setting
        self.strength = task.strength.clone().requires_grad_()
        torch.manual_seed(setting.seed)

    @abstractmethod
    def trained_loss(self, strength: Tensor) -> float:
        """Train with one's own strengths; the outer loss with these."""


class NetworkTrainer(Trainer):
    """Trains a network of PyG layers on the whole graph.

    Args:
        task: The graph and where training starts.
        setting: What to train and how.
    """

    def __init__(self, task: Task, setting: Setting) -> None:
        super().__init__(task, setting)
        self.network = Network(task, setting)
        self._train_labels = task.labels[task.train]
        self._validation_labels = task.labels[task.validation]

    @abstractmethod
    def train(self) -> nn.Module:
        """Take the inner steps; return the trained network, ready to evaluate."""

    @final
    def inner_loss(self, network: nn.Module) -> Tensor:
        """Mean loss of the training nodes; weight decay is left to the optimiser."""
        task = self.task
        logits = network(task.x, task.edge_index, self.strength)
        return cross_entropy(logits[task.train], self._train_labels)

    @final
    def outer_loss(self, network: nn.Module, strength: Tensor) -> Tensor:
        """Summed loss of the validation nodes."""
        task = self.task
        logits = network(task.x, task.edge_index, strength)
        chosen = logits[task.validation]
        return cross_entropy(chosen, self._validation_labels, reduction="sum")

    @final
    def trained_loss(self, strength: Tensor) -> float:
        """Train with one's own strengths; the outer loss with these."""
        network = self.train()
        with torch.no_grad():
            return float(self.outer_loss(network, strength))
