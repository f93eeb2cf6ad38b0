"""Random bits for many positions at a time, in one register, inside CPU kernels.

Left to itself the compiler multiplies 64 bits at a time. Here the formula of
``random_bits`` is told what to do with a register full of 32-bit words, and written
down as instructions: it is the same source.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from gsebo.sparse.numba_pack import Pack, constant, everywhere
from gsebo.sparse.random_bits import draw


class _Words:
    """32-bit words that write the instructions for what is done to them."""

    def __init__(self, builder: Any, words: Any) -> None:
        self._builder, self.words = builder, words

    def _with(self, instruction: str, other: Any) -> _Words:
        words = self.words
        if isinstance(other, int):
            other = ir.Constant(words.type, [other] * words.type.count)
        else:
            other = other.words
        return _Words(self._builder, getattr(self._builder, instruction)(words, other))

    def __add__(self, other: Any) -> _Words:
        return self._with("add", other)

    def __mul__(self, other: Any) -> _Words:
        return self._with("mul", other)

    def __xor__(self, other: Any) -> _Words:
        return self._with("xor", other)

    def __rshift__(self, other: int) -> _Words:
        return self._with("lshr", other)

    def __and__(self, other: int) -> _Words:
        # Whatever is beyond 32 bits is gone already.
        return self


def _kept(builder: Any, positions: Any, keys: Any, threshold: Any) -> Any:
    """Which of some 64-bit positions are kept, one bit each."""
    count = positions.type.count
    vector = ir.VectorType(ir.IntType(32), count)
    half = ir.Constant(positions.type, [32] * count)
    low = builder.trunc(positions, vector)
    high = builder.trunc(builder.lshr(positions, half), vector)
    key0, key1, low, high = (
        _Words(builder, words)
        for words in (*(everywhere(builder, key, count) for key in keys), low, high)
    )
    bits = draw(key0, key1, low, high).words
    return builder.icmp_unsigned("<", bits, everywhere(builder, threshold, count))


@cache
def draws_of(count: int) -> tuple[Any, Any]:
    """Functions that draw for ``count`` positions.

    The first, of positions from a place of an array on, writes 1 where a number is
    kept and else 0; the second, of neighboring positions, returns a pack of
    ``scale`` and 0.
    """

    @intrinsic
    def mark_kept(typing_context, positions, at, key0, key1, threshold, out, to):
        word = types.uint32
        kinds = positions, types.intp, word, word, word, out, types.intp

        def generate(context, builder, signature, given):
            memory, at, *keys, threshold, marks, to = given
            vector = ir.VectorType(ir.IntType(64), count).as_pointer()
            place = make_array(positions)(context, builder, memory).data
            place = builder.bitcast(builder.gep(place, [at]), vector)
            found = builder.load(place, align=8)
            kept = _kept(builder, found, keys, threshold)
            bytes_ = builder.zext(kept, ir.VectorType(ir.IntType(8), count))
            place = make_array(out)(context, builder, marks).data
            place = builder.gep(place, [to])
            place = builder.bitcast(place, bytes_.type.as_pointer())
            builder.store(bytes_, place, align=1)
            return context.get_dummy_value()

        return types.void(*kinds), generate

    @intrinsic
    def kept_scale(typing_context, first, key0, key1, threshold, scale):
        word = types.uint32
        kinds = types.int64, word, word, word, scale

        def generate(context, builder, signature, given):
            first, *keys, threshold, number = given
            positions = everywhere(builder, first, count)
            steps = ir.Constant(positions.type, list(range(count)))
            positions = builder.add(positions, steps)
            kept = _kept(builder, positions, keys, threshold)
            scales = everywhere(builder, number, count)
            return builder.select(kept, scales, constant(scales.type, 0.0))

        return Pack(scale, count)(*kinds), generate

    return mark_kept, kept_scale
