"""Several numbers in one register, with or without tangents, inside CPU kernels.

numba's own loop over a few channels or heads checks for aliasing and for a remainder
every time, which takes longer than the loop itself. With packs a kernel says what goes
into registers, and as nothing is left for the compiler to reorder, a kernel rounds the
same way whether it is compiled for one thread or for many.

A pack of two lanes is a dual number, value and tangent: sums and products follow the
rules of derivatives, so that a formula is written once for both orders.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

import math
import operator
from collections.abc import Callable
from functools import cache, wraps
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
    """The type of ``count`` numbers side by side, a power of two, in 1 or 2 lanes."""

    def __init__(self, dtype: Any, count: int, lanes: int = 1) -> None:
        self.dtype, self.count, self.lanes = dtype, count, lanes
        super().__init__(name=f"Pack({dtype}, {count}, {lanes})")


@register_model(Pack)
class _PackModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Pack) -> None:
        number = manager.lookup(kind.dtype).get_value_type()
        vector = ir.VectorType(number, kind.count)
        whole = vector if kind.lanes == 1 else ir.ArrayType(vector, kind.lanes)
        super().__init__(manager, kind, whole)


def _instruction(kinds: Callable[..., Any]) -> Callable[[Any], Any]:
    """Let kernels call a function that writes instructions.

    ``kinds`` says, for the types of its arguments, that of its result and those of the
    arguments as it takes them.
    """

    def define(write):
        # Its signature is taken over: the builder stands where the context does.
        @wraps(write)
        def typed(typing_context, *given):
            result, *taken = kinds(*given)
            return result(*taken), lambda context, builder, signature, arguments: write(
                builder, *arguments
            )

        return intrinsic(typed)

    return define


class Width(NamedTuple):
    """What has to know how many numbers a pack holds, and in how many equal groups.

    Offsets count numbers from the start of the memory of an array. A dual has as many
    lanes as these functions were made for; the second is ``step`` numbers further on.
    """

    load: Any  # (array, offset): the numbers from there on
    load_dual: Any  # (array, offset, step): the same, in all lanes
    spread: Any  # a number: as many copies of it
    zero: Any  # a number that gives the type: a dual 0
    repeat_dual: Any  # as load_dual, one number for each group, as often as it has some
    totals: Any  # a pack or a dual: the sum of each group


@cache
def packs_of(count: int, groups: int = 1, lanes: int = 1) -> Width:
    """Return the functions for packs of ``count`` numbers in ``groups`` groups."""

    @_instruction(lambda number: (Pack(number, count), number))
    def spread(builder, number):
        return everywhere(builder, number, count)

    @_instruction(lambda number: (Pack(number, count, lanes), number))
    def zero(builder, number):
        nothing = constant(ir.VectorType(number.type, count), 0.0)
        return _joined(builder, [nothing] * lanes)

    @_instruction(lambda pack: (Pack(pack.dtype, groups, pack.lanes), pack))
    def totals(builder, pack):
        found = [_folded(builder, lane, groups) for lane in _lanes(builder, pack)]
        return _joined(builder, found)

    load, load_dual = _loaders(count, count, lanes)
    _, repeat_dual = _loaders(count, groups, lanes)
    return Width(load, load_dual, spread, zero, repeat_dual, totals)


def _loaders(count: int, stored: int, lanes: int) -> tuple[Any, Any]:
    """How ``stored`` numbers become a pack of ``count``, and how they become a dual."""

    def load_lane(context, builder, array, memory, offset):
        place = _place(context, builder, array, memory, offset, stored)
        numbers = builder.load(place, align=_bytes(array.dtype))
        each = [number * stored // count for number in range(count)]
        return numbers if stored == count else _picked(builder, numbers, each)

    @intrinsic
    def load(typing_context, array, offset):
        def generate(context, builder, signature, arguments):
            return load_lane(context, builder, array, *arguments)

        return Pack(array.dtype, count)(array, types.intp), generate

    @intrinsic
    def load_dual(typing_context, array, offset, step):
        def generate(context, builder, signature, arguments):
            memory, first, step = arguments
            places = [first, builder.add(first, step)][:lanes]
            found = [load_lane(context, builder, array, memory, at) for at in places]
            return _joined(builder, found)

        kind = Pack(array.dtype, count, lanes)
        return kind(array, types.intp, types.intp), generate

    return load, load_dual


@intrinsic
def store(typing_context, array, offset, pack):
    """Write a pack to the memory of an array, from a number on."""

    def generate(context, builder, signature, arguments):
        memory, at, numbers = arguments
        place = _place(context, builder, array, memory, at, pack.count)
        builder.store(numbers, place, align=_bytes(array.dtype))
        return context.get_dummy_value()

    return types.void(array, types.intp, pack), generate


@intrinsic
def store_dual(typing_context, array, offset, step, pack):
    """Write all lanes of a pack, the second ``step`` numbers further on."""

    def generate(context, builder, signature, arguments):
        memory, at, step, whole = arguments
        for numbers in _lanes(builder, whole):
            place = _place(context, builder, array, memory, at, pack.count)
            builder.store(numbers, place, align=_bytes(array.dtype))
            at = builder.add(at, step)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, pack), generate


@_instruction(lambda a, b, c: (c, a, b, c))
def fma(builder, a, b, c):
    """``a * b + c``, rounded once where the machine can, with its tangent."""
    a, b, c = (_lanes(builder, each) for each in (a, b, c))
    found = [fused(builder, a[0], b[0], c[0])]
    found += [_tangent(builder, a, b, start) for start in c[1:]]
    return _joined(builder, found)


@_instruction(lambda a, b, c: (c, a, b, c))
def fma_last(builder, a, b, c):
    """``a * b + c``, where of two duals only the tangent of their product counts."""
    a, b = (_lanes(builder, each) for each in (a, b))
    if len(a) == 1:
        return fused(builder, a[0], b[0], c)
    return _tangent(builder, a, b, c)


def _one_lane(pack: Pack) -> Pack:
    return Pack(pack.dtype, pack.count)


@_instruction(lambda pack: (_one_lane(pack), pack))
def value(builder, pack):
    """The first lane."""
    return _lanes(builder, pack)[0]


@_instruction(lambda pack: (_one_lane(pack), pack))
def last(builder, pack):
    """The last lane: of a dual its tangent."""
    return _lanes(builder, pack)[-1]


@_instruction(lambda a, b: (Pack(a.dtype, a.count, 2), a, b))
def dual(builder, number, tangent):
    """Two packs as the lanes of one."""
    return _joined(builder, [number, tangent])


@_instruction(lambda pack: (pack.dtype, pack))
def total(builder, pack):
    """Sum of the numbers."""
    return builder.extract_element(_folded(builder, pack, 1), _LANE(0))


@_instruction(lambda pack, count: (pack, pack, types.intp))
def without_first(builder, pack, count):
    """The pack with its first ``count`` numbers replaced by 0."""
    lanes = _lanes(builder, pack)
    zero, size = constant(lanes[0].type, 0.0), lanes[0].type.count
    number = ir.Constant(ir.VectorType(count.type, size), list(range(size)))
    kept = builder.icmp_signed(">=", number, everywhere(builder, count, size))
    return _joined(builder, [builder.select(kept, each, zero) for each in lanes])


@_instruction(lambda a, b: (a, a, a))
def largest(builder, a, b):
    """The larger of both, number by number; ``b`` where ``a`` is not a number."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


@_instruction(lambda x, above, below: (above, x, above, above))
def where_positive(builder, x, above, below):
    """``above`` where ``x`` is positive or not a number, else ``below``."""
    rest = builder.fcmp_ordered("<=", x, constant(x.type, 0.0))
    return builder.select(rest, below, above)


@_instruction(lambda x, number: (number, x, number))
def where_not_zero(builder, x, number):
    """``number`` where ``x`` is not 0, else 0."""
    there = builder.fcmp_unordered("!=", x, constant(x.type, 0.0))
    return builder.select(there, number, constant(number.type, 0.0))


@_instruction(lambda pack, slope: (_one_lane(pack), pack, pack.dtype))
def leaky_slope(builder, pack, slope):
    """Derivative of the leaky ReLU: 1 where a number is positive, else ``slope``."""
    x = _lanes(builder, pack)[0]
    positive = builder.fcmp_ordered(">", x, constant(x.type, 0.0))
    below = everywhere(builder, slope, x.type.count)
    return builder.select(positive, constant(x.type, 1.0), below)


def _define_operator(symbol: Any, instruction: str) -> None:
    """Let two packs be added, subtracted and so on, number by number."""
    is_product = symbol is operator.mul

    @type_callable(symbol)
    def type_of_operator(context):
        def result(a, b):
            if not (isinstance(a, Pack) and isinstance(b, Pack)):
                return None
            if is_product and a.count == b.count:
                return a if a.lanes > b.lanes else b
            return a if a == b else None

        return result

    @lower_builtin(symbol, Pack, Pack)
    def generate(context, builder, signature, arguments):
        a, b = (_lanes(builder, each) for each in arguments)
        found = [
            getattr(builder, instruction)(x, y) for x, y in zip(a, b, strict=False)
        ]
        if is_product and len(a) + len(b) > 2:
            found = [found[0], _tangent(builder, a, b)]
        return _joined(builder, found)


for _symbol, _instruction_name in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _define_operator(_symbol, _instruction_name)


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


def _lanes(builder: Any, whole: Any) -> list[Any]:
    if not isinstance(whole.type, ir.ArrayType):
        return [whole]
    return [builder.extract_value(whole, lane) for lane in range(whole.type.count)]


def _joined(builder: Any, lanes: list[Any]) -> Any:
    if len(lanes) == 1:
        return lanes[0]
    whole = ir.Constant(ir.ArrayType(lanes[0].type, len(lanes)), ir.Undefined)
    for number, lane in enumerate(lanes):
        whole = builder.insert_value(whole, lane, number)
    return whole


def _tangent(builder: Any, a: Any, b: Any, start: Any = None) -> Any:
    """``a' b + a b'``, or ``start + a b' + a' b``; what has one lane is constant."""
    terms = [(a[1], b[0])] if len(a) == 2 else []
    terms += [(a[0], b[1])] if len(b) == 2 else []
    if start is None:
        start = builder.fmul(*terms.pop(0))
    for x, y in reversed(terms):
        start = fused(builder, x, y, start)
    return start


def _folded(builder: Any, numbers: Any, groups: int) -> Any:
    """Sum of each group: first and second half of all groups, again and again."""
    while numbers.type.count > groups:
        size = numbers.type.count // groups
        low = [lane for lane in range(numbers.type.count) if lane % size < size // 2]
        high = [lane + size // 2 for lane in low]
        parts = (_picked(builder, numbers, lanes) for lanes in (low, high))
        numbers = builder.fadd(*parts)
    return numbers


def _place(
    context: Any, builder: Any, kind: Any, array: Any, offset: Any, count: int
) -> Any:
    """Pointer to the pack that begins at a number of an array."""
    memory = make_array(kind)(context, builder, array).data
    vector = ir.VectorType(memory.type.pointee, count)
    return builder.bitcast(builder.gep(memory, [offset]), vector.as_pointer())


def everywhere(builder: Any, number: Any, count: int) -> Any:
    """The same number in every place of a pack."""
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


class _Format(NamedTuple):
    """What the exponential has to know of a kind of number."""

    size: int  # bits in all
    fraction: int  # bits behind the leading one
    bias: int  # of the exponent
    log2_high: float  # ln 2 to so few bits that its multiples are exact
    log2_low: float  # the rest of ln 2
    terms: int  # of the series, so that what is left out is below rounding


_FORMATS = {
    "float": _Format(32, 23, 127, 0.693359375, -2.12194440054690583e-4, 8),
    "double": _Format(64, 52, 1023, 0.693145751953125, 1.42860682030941723e-6, 14),
}


@_instruction(lambda x: (x, x))
def exponential(builder, x):
    """``exp(x)`` for ``x`` that is not positive; 0 where it would be subnormal.

    That of the C library takes one number at a time. This one is without a call: of
    packs or, in a loop that becomes a vector loop, of numbers.

    It is ``2^n exp(r)`` with ``x = n ln 2 + r`` and ``r`` as small as possible.
    """
    packed = isinstance(x.type, ir.VectorType)
    kind = _FORMATS[str(x.type.element if packed else x.type)]
    bits = ir.IntType(kind.size)
    if packed:
        bits = ir.VectorType(bits, x.type.count)
    # At this size neighboring numbers are 1 apart: a sum with it is rounded to a whole
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
