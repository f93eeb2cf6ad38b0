"""The kernel calls of an attention step on the CPU."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gsebo.sparse.kernels.attention_step import AttentionStep
from gsebo.sparse.kernels.drop import Drop
from gsebo.sparse.kernels.numba_attention_back import (
    CHUNK,
    attention_back_of_entries,
    products_of_entries,
    source_sums,
    weight_sums,
)
from gsebo.sparse.kernels.numba_attention_loops import (
    attention_of_entries,
    compiled,
    scores_of_nodes,
    weighted_sums,
)
from gsebo.sparse.kernels.numba_compile import bind
from gsebo.sparse.kernels.numba_noise import drop_arguments
from gsebo.sparse.pattern import Pattern

Call = Callable[[], None]

# A number of a softmax costs about as much as so many multiplications.
_SOFTMAX = 20
# Bytes in the largest pack; sums of three of them are made at a time, in registers.
_PACK_BYTES = 256


class AttentionMemory(NamedTuple):
    """What an attention step keeps from its way forwards for its way back.

    Attributes:
        roles: The weight, ``[replicas, lanes, 2, heads * channels]``.
        scores: Of the nodes, ``[replicas, columns, lanes, 2, heads]``.
        keep: 0 or the inverse keep rate, ``[replicas, entries, heads]``.
        share: Attention before dropout, ``[replicas, entries, lanes, heads]``.
        weighted: Attention after dropout, times strength; of the same shape.
    """

    roles: Tensor
    scores: Tensor
    keep: Tensor
    share: Tensor
    weighted: Tensor


def attention_memory(step: AttentionStep) -> AttentionMemory:
    """Memory for one attention step, for both directions."""
    replicas, columns, lanes, size = step.message.shape
    entries = step.pattern.num_entries
    width = _heads_in_pack(step)
    padded = -(-step.heads // width) * width
    like = step.message
    return AttentionMemory(
        like.new_empty(replicas, lanes, 2, size),
        like.new_zeros(replicas, columns, lanes, 2, padded),
        like.new_ones(replicas, entries, padded),
        like.new_empty(replicas, entries, lanes, padded),
        like.new_empty(replicas, entries, lanes, padded),
    )


def attention_forward(
    step: AttentionStep, memory: AttentionMemory, out: Tensor
) -> list[Call]:
    """Calls that compute an attention step.

    Args:
        step: What it reads.
        memory: Where it keeps what the way back needs.
        out: ``[replicas, rows, lanes, heads * channels]``.
    """
    lanes, pattern = step.lanes, step.pattern
    packs = _packs_of_channels(step)
    roles, scores, keep, share, weighted = (each.numpy() for each in memory)
    number = keep.dtype.type
    keys = np.empty((keep.shape[0], 2), np.uint32)
    return [
        bind(
            compiled(scores_of_nodes, lanes=lanes, **packs),
            2 * step.message.numel(),
            step.message.numpy(),
            step.weight.numpy(),
            step.tangent.numpy(),
            pattern.num_rows,
            roles,
            scores,
        ),
        bind(
            compiled(attention_of_entries, lanes=lanes, heads=_heads_in_pack(step)),
            _SOFTMAX * share.size,
            *pattern.arrays,
            step.strength.numpy(),
            scores,
            number(step.slope),
            *_drop_arguments(step),
            keys,
            keep,
            share,
            weighted,
        ),
        _weighted_sums(pattern, step, memory, step.message, out),
    ]


def attention_back(
    step: AttentionStep,
    memory: AttentionMemory,
    grad_out: Tensor,
    to_message: Tensor,
    to_weight: Tensor,
    to_strength: Tensor | None,
    *,
    accumulate: bool,
) -> list[Call]:
    """Calls that pull a gradient back through an attention step.

    With two lanes, it is the tangents of the gradients by weight and strength that are
    added.

    Args:
        step: What the step reads.
        memory: What it has kept.
        grad_out: Gradient by its result, ``[replicas, rows, lanes, heads * channels]``.
        to_message: Gradient by the messages, written or added. With one lane less than
            the messages it is the tangent alone.
        to_weight: Gradient by the weight, added.
        to_strength: Gradient by the strengths, added, or None if nobody asks.
        accumulate: Whether to add to ``to_message``.
    """
    lanes, pattern = step.lanes, step.pattern
    heads, packs = _heads_in_pack(step), _packs_of_channels(step)
    replicas, columns, _, size = step.message.shape
    to_entries = torch.empty_like(memory.share)
    # Nodes that are no target keep their 0.
    to_scores = torch.zeros_like(memory.scores)
    chunk_sums = memory.roles.new_empty(replicas, -(-columns // CHUNK), 2, size)
    if to_strength is None:
        to_strength = step.strength.new_empty(replicas, 0)
    message, grad = step.message.numpy(), grad_out.numpy()
    keep, share = memory.keep.numpy(), memory.share.numpy()
    slope = keep.dtype.type(step.slope)
    return [
        bind(
            compiled(products_of_entries, lanes=lanes, **packs),
            to_entries.numel() * step.channels,
            *pattern.arrays,
            grad,
            message,
            step.heads,
            to_entries.numpy(),
        ),
        bind(
            compiled(attention_back_of_entries, lanes=lanes, heads=heads),
            _SOFTMAX * to_entries.numel(),
            *pattern.arrays,
            step.strength.numpy(),
            memory.scores.numpy(),
            slope,
            keep,
            share,
            to_entries.numpy(),
            to_scores.numpy(),
            to_strength.numpy(),
        ),
        bind(
            compiled(source_sums, lanes=lanes, heads=heads),
            to_entries.numel(),
            pattern.T.arrays[0],
            pattern.T.arrays[2],
            to_entries.numpy(),
            to_scores.numpy(),
        ),
        _weighted_sums(
            pattern.T,
            step,
            memory,
            grad_out,
            to_message,
            to_scores,
            accumulate=accumulate,
        ),
        bind(
            compiled(weight_sums, lanes=lanes, **packs),
            2 * step.message.numel(),
            message,
            to_scores.numpy(),
            chunk_sums.numpy(),
            to_weight.numpy(),
        ),
    ]


def _weighted_sums(
    pattern: Pattern,
    step: AttentionStep,
    memory: AttentionMemory,
    x: Tensor,
    out: Tensor,
    to_scores: Tensor | None = None,
    *,
    accumulate: bool = False,
) -> Call:
    """Sum ``x`` over the entries, weighted.

    Args:
        pattern: That of the step, or for the way back its transpose.
        step: The step.
        memory: With the weights.
        x: What to sum.
        out: Where to; with two lanes in ``x`` and one here, only the tangent.
        to_scores: For the way back, the gradient by the scores, which are pulled back
            to ``out`` too.
        accumulate: Whether to add to ``out``.
    """
    kernel = compiled(
        weighted_sums,
        lanes=step.lanes,
        **_packs_of_channels(step),
        backwards=to_scores is not None,
        tangent_only=out.shape[2] < step.lanes,
    )
    return bind(
        kernel,
        memory.weighted.numel() * step.channels,
        *pattern.arrays,
        memory.weighted.numpy(),
        x.numpy(),
        step.heads,
        memory.roles.numpy(),
        (memory.scores if to_scores is None else to_scores).numpy(),
        accumulate,
        out.numpy(),
    )


def _heads_in_pack(step: AttentionStep) -> int:
    """Size of the packs of heads."""
    return next(width for width in (1, 2, 4, 8) if width >= min(step.heads, 8))


def _packs_of_channels(step: AttentionStep) -> dict[str, int]:
    """Size of the packs of channels, and of how many heads a pack holds all channels.

    Where a head has few channels, a pack takes several heads, if they fill it up.
    """
    most = _PACK_BYTES // step.message.element_size()
    channels = 1
    while 2 * channels <= min(step.channels, most):
        channels *= 2
    span = 1
    while channels == step.channels and 2 * span <= most // channels:
        if step.heads % (2 * span):
            break
        span *= 2
    return {"channels": span * channels, "span": span}


def _drop_arguments(step: AttentionStep) -> Any:
    replicas, entries = step.strength.shape
    drop = step.drop or Drop.none(replicas, entries)
    return (
        step.drop is not None,
        *drop_arguments(drop, step.strength),
        np.int64(step.whole_entries),
    )
