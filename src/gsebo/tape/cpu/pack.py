"""Several numbers in one register, as values inside CPU kernels.

numba's own loop over a few channels or heads checks for aliasing and for a remainder
every time, which takes longer than the loop itself. With packs a kernel says what goes
into registers, and as nothing is left for the compiler to reorder, a kernel rounds the
same way whether it is compiled for one thread or for many.

The exponential of a pack of numbers or of one, on the CPU.

That of the C library takes one number at a time.
"""

import math
import operator
from functools import cache
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import (
    intrinsic,
    lower_builtin,
    models,
    register_model,
    type_callable,
)
from numba.np.arrayobj import make_array


class Pack(types.Type):
    """The type of ``count`` numbers side by side; ``count`` is a power of two."""

    def __init__(self, dtype: Any, count: int) -> None:
        self.dtype, self.count = dtype, count
        super().__init__(name=f"Pack({dtype}, {count})")


@register_model(Pack)
class _PackModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Pack) -> None:
        number = manager.lookup(kind.dtype).get_value_type()
        super().__init__(manager, kind, ir.VectorType(number, kind.count))


class Width(NamedTuple):
    """What has to know how many numbers a pack holds, and in how many equal groups.

    Offsets count numbers from the start of the memory of an array.

    Attributes:
        load: ``(array, offset)`` to the numbers from there on.
        spread: A number to as many copies of it.
        repeat: ``(array, offset)`` to one number from there on for each group, as often
            as the group has numbers.
        totals: A pack to the sum of each group.
    """

    load: Any
    spread: Any
    repeat: Any
    totals: Any


@cache
def packs_of(count: int, groups: int = 1) -> Width:
    """Return the functions for packs of ``count`` numbers in ``groups`` groups."""

    @intrinsic
    def load(typing_context, array, offset):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            return _load(context, builder, array, arguments, count)

        return Pack(array.dtype, count)(array, types.intp), generate

    @intrinsic
    def spread(typing_context, number):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            return _everywhere(builder, arguments[0], count)

        return Pack(number, count)(number), generate

    @intrinsic
    def repeat(typing_context, array, offset):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            numbers = _load(context, builder, array, arguments, groups)
            size = count // groups
            return _picked(builder, numbers, [lane // size for lane in range(count)])

        return Pack(array.dtype, count)(array, types.intp), generate

    @intrinsic
    def totals(typing_context, pack):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            return _folded(builder, arguments[0], groups)

        return Pack(pack.dtype, groups)(pack), generate

    return Width(load, spread, repeat, totals)


@intrinsic
def store(typing_context, array, offset, pack):  # type: ignore[no-untyped-def]
    """Write a pack to the memory of an array, from a number on."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        place = _place(context, builder, array, arguments[:2], pack.count)
        builder.store(arguments[2], place, align=_bytes(array.dtype))
        return context.get_dummy_value()

    return types.void(array, types.intp, pack), generate


@intrinsic
def fma(typing_context, a, b, c):  # type: ignore[no-untyped-def]
    """``a * b + c``, rounded once where the machine can."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return fused(builder, *arguments)

    return a(a, a, a), generate


@intrinsic
def total(typing_context, pack):  # type: ignore[no-untyped-def]
    """Sum of the numbers."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        whole = _folded(builder, arguments[0], 1)
        return builder.extract_element(whole, _LANE(0))

    return pack.dtype(pack), generate


@intrinsic
def without_first(typing_context, pack, count):  # type: ignore[no-untyped-def]
    """The pack with its first ``count`` numbers replaced by 0."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        numbers, skipped = arguments
        lanes = ir.VectorType(skipped.type, pack.count)
        number = ir.Constant(lanes, list(range(pack.count)))
        skipped = _everywhere(builder, skipped, pack.count)
        kept = builder.icmp_signed(">=", number, skipped)
        return builder.select(kept, numbers, constant(numbers.type, 0.0))

    return pack(pack, types.intp), generate


@intrinsic
def largest(typing_context, a, b):  # type: ignore[no-untyped-def]
    """The larger of both, number by number; ``b`` where ``a`` is not a number."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        first, second = arguments
        larger = builder.fcmp_ordered(">", first, second)
        return builder.select(larger, first, second)

    return a(a, a), generate


@intrinsic
def leaky_slope(typing_context, pack, slope):  # type: ignore[no-untyped-def]
    """Derivative of the leaky ReLU: 1 where a number is positive, else ``slope``."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        x, below = arguments
        positive = builder.fcmp_ordered(">", x, constant(x.type, 0.0))
        below = _everywhere(builder, below, pack.count)
        return builder.select(positive, constant(x.type, 1.0), below)

    return pack(pack, pack.dtype), generate


def _define_operator(symbol: Any, instruction: str) -> None:
    """Let two packs be added, subtracted and so on, number by number."""

    @type_callable(symbol)
    def type_of_operator(context):  # type: ignore[no-untyped-def]
        def result(a, b):  # type: ignore[no-untyped-def]
            return a if isinstance(a, Pack) and a == b else None

        return result

    @lower_builtin(symbol, Pack, Pack)
    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return getattr(builder, instruction)(*arguments)


for _symbol, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _define_operator(_symbol, _instruction)


_LANE = ir.IntType(32)


def fused(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """Instruction for ``a * b + c``, on packs or on single numbers."""
    packed = isinstance(a.type, ir.VectorType)
    number = a.type.element if packed else a.type
    size = 64 if isinstance(number, ir.DoubleType) else 32
    kind = ir.FunctionType(a.type, [a.type] * 3)
    name = f"llvm.fmuladd.{f'v{a.type.count}' if packed else ''}f{size}"
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(function, [a, b, c])


def _folded(builder: Any, numbers: Any, groups: int) -> Any:
    """Sum of each group: first and second half of all groups, again and again."""
    while numbers.type.count > groups:
        size = numbers.type.count // groups
        low = [lane for lane in range(numbers.type.count) if lane % size < size // 2]
        high = [lane + size // 2 for lane in low]
        parts = (_picked(builder, numbers, lanes) for lanes in (low, high))
        numbers = builder.fadd(*parts)
    return numbers


def _load(context: Any, builder: Any, kind: Any, arguments: Any, count: int) -> Any:
    place = _place(context, builder, kind, arguments, count)
    return builder.load(place, align=_bytes(kind.dtype))


def _place(context: Any, builder: Any, kind: Any, arguments: Any, count: int) -> Any:
    """Pointer to the pack that begins at a number of an array."""
    array, offset = arguments
    memory = make_array(kind)(context, builder, array).data
    vector = ir.VectorType(memory.type.pointee, count)
    return builder.bitcast(builder.gep(memory, [offset]), vector.as_pointer())


def _everywhere(builder: Any, number: Any, count: int) -> Any:
    vector = ir.VectorType(number.type, count)
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, number, _LANE(0))
    return _picked(builder, first, [0] * count)


def _picked(builder: Any, vector: Any, lanes: Any) -> Any:
    chosen = ir.Constant(ir.VectorType(_LANE, len(lanes)), list(lanes))
    return builder.shuffle_vector(vector, vector, chosen)


def constant(kind: Any, number: float) -> Any:
    """A number, or the same number everywhere in a pack."""
    packed = isinstance(kind, ir.VectorType)
    return ir.Constant(kind, [number] * kind.count if packed else number)


def _bytes(number: Any) -> int:
    """Size of a number, which is also the alignment that any element has."""
    size: int = number.bitwidth // 8
    return size


@intrinsic
def exponential(typing_context, pack):  # type: ignore[no-untyped-def]
    """``exp(x)`` for ``x`` that is not positive; 0 where it would be subnormal."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return _exponential(builder, arguments[0], _FORMATS[pack.dtype])

    return pack(pack), generate


@intrinsic
def exponential_of(typing_context, x):  # type: ignore[no-untyped-def]
    """The same for one number, without a call: a loop of it becomes a vector loop."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return _exponential(builder, arguments[0], _FORMATS[x])

    return x(x), generate


class _Format(NamedTuple):
    """What the exponential has to know of a kind of number.

    Attributes:
        size: Bits in all.
        fraction: Bits behind the leading one.
        bias: Of the exponent.
        log2_high: ln 2 to so few bits that its multiples are exact.
        log2_low: The rest of ln 2.
        terms: Of the series, so that what is left out is below rounding.
    """

    size: int
    fraction: int
    bias: int
    log2_high: float
    log2_low: float
    terms: int


_FORMATS = {
    types.float32: _Format(32, 23, 127, 0.693359375, -2.12194440054690583e-4, 8),
    types.float64: _Format(64, 52, 1023, 0.693145751953125, 1.42860682030941723e-6, 14),
}


def _exponential(builder: Any, x: Any, kind: _Format) -> Any:
    """``2^n exp(r)`` with ``x = n ln 2 + r`` and ``r`` as small as possible."""
    bits = ir.IntType(kind.size)
    if isinstance(x.type, ir.VectorType):
        bits = ir.VectorType(bits, x.type.count)
    # At this size neighbouring numbers are 1 apart: a sum with it is rounded to a whole
    # number, which is read off its last bits. No cast, as NaN must not meet one.
    shift = constant(x.type, 1.5 * 2.0**kind.fraction)
    shifted = fused(builder, x, constant(x.type, 1 / math.log(2)), shift)
    whole = builder.fsub(shifted, shift)
    rest = fused(builder, whole, constant(x.type, -kind.log2_high), x)
    rest = fused(builder, whole, constant(x.type, -kind.log2_low), rest)
    series = constant(x.type, 1 / math.factorial(kind.terms - 1))
    for power in range(kind.terms - 2, -1, -1):
        term = constant(x.type, 1 / math.factorial(power))
        series = fused(builder, series, rest, term)
    exponent = builder.bitcast(shifted, bits)
    exponent = builder.sub(exponent, builder.bitcast(shift, bits))
    exponent = builder.add(exponent, constant(bits, kind.bias))
    exponent = builder.shl(exponent, constant(bits, kind.fraction))
    result = builder.fmul(series, builder.bitcast(exponent, x.type))
    lowest = constant(x.type, (2 - kind.bias) * math.log(2))
    small = builder.fcmp_ordered("<", x, lowest)
    return builder.select(small, constant(x.type, 0.0), result)
