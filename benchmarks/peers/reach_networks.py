"""The four networks as functions of one vector that holds all of their weights."""

from typing import final

import torch
from torch import Tensor
from torch.nn.functional import elu, leaky_relu, relu

from benchmarks.peers.products import Places, expand, multiply, softmax
from benchmarks.peers.reach import Reach
from benchmarks.setting import LAYERS, Setting
from benchmarks.task import Task


@final
class ReachNetwork:
    """Scores of the nodes that a reach was made for.

    Args:
        task: Shapes of the weights.
        setting: Which network.
        reach: What it sees.
    """

    def __init__(self, task: Task, setting: Setting, reach: Reach) -> None:
        self._reach, self._rate = reach, setting.dropout
        self._kind = setting.backbone
        self._activation = elu if self._kind == "gat" else relu
        self._shapes = [weight.shape for weight in task.weights.values()]
        self._sizes = [shape.numel() for shape in self._shapes]
        prefixes = [f"layers.{number}." for number in range(LAYERS)]
        # Where the weights of each layer are, and last those of the read-out.
        self._own = [
            {
                name.removeprefix(prefix): place
                for place, name in enumerate(task.weights)
                if name.startswith(prefix)
            }
            for prefix in prefixes
        ]
        self._last = {name: place for place, name in enumerate(task.weights)}
        self._heads = [
            _Heads(places, task.weights[f"{prefix}attention"], task.strength)
            for prefix, places in zip(prefixes, reach.places, strict=True)
            if self._kind == "gat"
        ]

    def __call__(
        self, flat: Tensor, strengths: list[Tensor], *, training: bool
    ) -> Tensor:
        """Return logits; the strengths are those of :meth:`Reach.strengths`."""
        parts = flat.split(self._sizes)
        weights = [
            part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)
        ]
        rate = self._rate if training else 0.0
        outputs: list[Tensor] = []
        for number, own in enumerate(self._own):
            named = {name: weights[place] for name, place in own.items()}
            strength = strengths[number]
            outputs.append(self._layer(number, outputs, named, strength, rate))
        if self._kind != "jk":
            return outputs[-1]
        last = len(outputs[-1])
        hidden = torch.cat([relu(output[:last]) for output in outputs], dim=1)
        bias, weight = (weights[self._last[name]] for name in ("bias", "weight"))
        return torch.addmm(bias, hidden, weight)

    def _layer(
        self,
        number: int,
        outputs: list[Tensor],
        weights: dict[str, Tensor],
        strength: Tensor,
        rate: float,
    ) -> Tensor:
        reach, places = self._reach, self._reach.places[number]
        before, after = reach.sizes[number : number + 2]
        weight, bias, own = (
            weights["weight"],
            weights["bias"],
            weights.get("self_weight"),
        )
        if not outputs:
            features = reach.features
            values = dropped(features.values, rate)
            message = features.times(values, weight, before)
            if self._kind == "gat":
                return self._attended(number, message, weights, strength, rate)
            out = multiply(places, strength, message, weights_in_values=False) + bias
            return out if own is None else out + features.times(values, own, after)
        hidden = dropped(self._activation(outputs[-1]), rate)
        if self._kind == "gat":
            return self._attended(number, hidden @ weight, weights, strength, rate)
        # Fewer nodes are left after the sum than before, so that it comes first.
        near = multiply(places, strength, hidden, weights_in_values=False)
        out = torch.addmm(bias, near, weight)
        return out if own is None else torch.addmm(out, hidden[:after], own)

    def _attended(
        self,
        number: int,
        message: Tensor,
        weights: dict[str, Tensor],
        strength: Tensor,
        rate: float,
    ) -> Tensor:
        attend = self._heads[number]
        return attend(message, weights["attention"], strength, rate) + weights["bias"]


@final
class _Heads:
    """Attention times strength, each head with its own channels of the messages."""

    def __init__(self, places: Places, attention: Tensor, strength: Tensor) -> None:
        self._places = places
        self._number, self._channels, _ = attention.shape
        head = torch.arange(self._number, device=attention.device)
        rows, columns = (
            (end[:, None] * self._number + head).flatten()
            for end in (places.rows, places.columns)
        )
        sizes = [self._number * size for size in places.shape]
        self._by_head = Places(rows, columns, *sizes, strength)
        # One column for each role and head, which sees the channels of that head only.
        eye = torch.eye(self._number, dtype=attention.dtype, device=attention.device)
        self._own = eye[:, None, None, :]

    def __call__(
        self, message: Tensor, attention: Tensor, strength: Tensor, rate: float
    ) -> Tensor:
        places = self._places
        seen = (attention[..., None] * self._own).reshape(message.shape[1], -1)
        target, source = (message @ seen).split(self._number, dim=1)
        target = target[: places.shape[0]]
        scores = expand(places, target) + expand(places, source, by_column=True)
        share = dropped(softmax(places, leaky_relu(scores, 0.2)), rate)
        share = (share * strength[:, None]).flatten()
        by_head = message.view(-1, self._channels)
        out = multiply(self._by_head, share, by_head, weights_in_values=True)
        return out.view(places.shape[0], -1)


def dropped(x: Tensor, rate: float) -> Tensor:
    """Dropout, with a rate that is rounded to a multiple of 1 / 65536.

    The generator is asked for 64 bits at a time, which make four numbers: torch's own
    dropout takes five times as long on a CPU.
    """
    if rate == 0:
        return x
    number = x.numel()
    bits = torch.empty((number + 3) // 4, dtype=torch.int64, device=x.device)
    numbers = bits.random_(-(2**63), None).view(torch.int16)[:number]
    kept = numbers >= round(rate * 2**16) - 2**15
    return kept.to(x.dtype).mul_(1 / (1 - rate)).view(x.shape).mul(x)
