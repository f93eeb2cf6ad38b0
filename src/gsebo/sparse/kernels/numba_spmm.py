"""The sparse-dense product for the CPU, with a block of channels kept in registers.

numba's own loop over channels checks for aliasing and for a remainder at every entry,
which makes it two to four times slower where a row has 16 channels. So the loop over
the entries of a row is written as vector instructions; the rest is ordinary numba.

Everything is in this one file because numba's cache on disk watches only the file of
the kernel itself.
"""

from typing import Any

from llvmlite import ir
from numba import prange, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from gsebo.sparse.kernels.numba_compile import Variants, compile_twice

_WIDTHS = (32, 16, 8, 4, 1)
# A product and a sum may be fused. The order of the sum stays that of the entries.
_FUSED = ("contract", "nsz")
_ARGUMENTS = (
    "columns",
    "entries",
    "start",
    "end",
    "values",
    "value_offset",
    "x",
    "x_offset",
    "x_stride",
    "out",
    "out_offset",
)


def spmm_kernel(channels: int) -> Variants:
    """Return the kernel with the widest block that fits into a row."""
    return _KERNELS[next(width for width in _WIDTHS if width <= max(channels, 1))]


def _spmm(indptr, columns, entries, values, x, out):  # type: ignore[no-untyped-def]
    batch, num_rows, channels = out.shape
    # Rows may lie apart (a slice of something wider), the channels of one may not.
    value_step = values.strides[0] // values.itemsize if values.shape[0] > 1 else 0
    x_step = x.strides[0] // x.itemsize if x.shape[0] > 1 else 0
    x_stride = x.strides[1] // x.itemsize
    out_step, out_stride = (
        out.strides[0] // out.itemsize,
        out.strides[1] // out.itemsize,
    )
    for task in prange(batch * num_rows):
        b = task // num_rows
        i = task - b * num_rows
        start, end = indptr[i], indptr[i + 1]
        for block in range((channels + WIDTH - 1) // WIDTH):  # type: ignore[name-defined]  # noqa: F821
            # The last block may overlap the one before: those channels are summed
            # twice, to the same numbers.
            c = min(block * WIDTH, channels - WIDTH)  # type: ignore[name-defined]  # noqa: F821
            weighted_sum(  # type: ignore[name-defined]  # noqa: F821
                columns,
                entries,
                start,
                end,
                values,
                b * value_step,
                x,
                b * x_step + c,
                x_stride,
                out,
                b * out_step + i * out_stride + c,
            )


def _make_weighted_sum(width: int) -> Any:
    """Make ``out[block] = sum of values[entry] * x[column, block]`` over one row.

    Offsets count numbers from the start of the memory; a block is ``width`` channels
    from its offset on.
    """

    @intrinsic
    def weighted_sum(  # type: ignore[no-untyped-def]
        typing_context,
        columns,
        entries,
        start,
        end,
        values,
        value_offset,
        x,
        x_offset,
        x_stride,
        out,
        out_offset,
    ):
        word = types.intp
        arguments = (columns, entries, word, word, values, word, x, word, word, out)
        signature = types.void(*arguments, word)

        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            _write_loop(context, builder, signature.args, arguments, width)
            return context.get_dummy_value()

        return signature, generate

    return weighted_sum


def _write_loop(
    context: Any, builder: Any, kinds: Any, arguments: Any, width: int
) -> None:
    """Write the instructions of ``weighted_sum``."""
    given = dict(zip(_ARGUMENTS, arguments, strict=True))
    memory = {
        name: make_array(kind)(context, builder, given[name]).data
        for name, kind in zip(_ARGUMENTS, kinds, strict=True)
        if isinstance(kind, types.Array)
    }
    number = memory["x"].type.pointee
    vector = ir.VectorType(number, width)
    word = given["start"].type
    total = cgutils.alloca_once_value(builder, ir.Constant(vector, [0.0] * width))

    def index(name: str, position: Any) -> Any:
        found = builder.load(builder.gep(memory[name], [position]))
        return found if found.type == word else builder.sext(found, word)

    def block(name: str, position: Any) -> Any:
        pointer = builder.gep(memory[name], [position])
        return builder.bitcast(pointer, vector.as_pointer())

    with cgutils.for_range_slice(builder, given["start"], given["end"], word(1)) as (
        position,
        _,
    ):
        entry = builder.add(given["value_offset"], index("entries", position))
        weight = builder.load(builder.gep(memory["values"], [entry]))
        row = builder.mul(index("columns", position), given["x_stride"])
        numbers = builder.load(
            block("x", builder.add(given["x_offset"], row)), align=_alignment(number)
        )
        product = builder.fmul(_everywhere(builder, weight, vector), numbers, _FUSED)
        product = builder.fadd(builder.load(total), product, flags=_FUSED)
        builder.store(product, total)
    target = block("out", given["out_offset"])
    builder.store(builder.load(total), target, align=_alignment(number))


def _alignment(number: Any) -> int:
    """Alignment that any element of an array has."""
    return 8 if isinstance(number, ir.DoubleType) else 4


def _everywhere(builder: Any, number: Any, vector: Any) -> Any:
    """Put the same number into every lane."""
    lane = ir.IntType(32)
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, number, lane(0))
    lanes = ir.Constant(ir.VectorType(lane, vector.count), None)
    return builder.shuffle_vector(first, undefined, lanes)


_KERNELS = {
    width: compile_twice(
        _spmm, f"_{width}", WIDTH=width, weighted_sum=_make_weighted_sum(width)
    )
    for width in _WIDTHS
}
