"""The exponential of a pack of numbers or of one, on the CPU.

That of the C library takes one number at a time.
"""

import math
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gsebo.sparse.kernels.numba_pack import constant, fused


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
