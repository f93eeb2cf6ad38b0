"""Products of dense matrices on the CPU, as kernels that other kernels stand beside.

A library chooses its code by the processor and by the shape, and pays for the choice
at every call, which on small graphs takes longer than the product. Here eight rows of
the result are summed at a time, in registers, so that there is something to do while
a sum waits for itself.

Every number is summed in the order of the inner dimension. Where that is long, parts
of it are summed first and then added in their order, so that the number of threads
makes no difference.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array
from torch import Tensor

from gsebo.sparse.numba_calls import KernelCall, bind_kernel
from gsebo.sparse.numba_compile import compile_twice
from gsebo.sparse.numba_pack import constant, everywhere, fused

# Columns and rows of the result that are summed at a time.
_WIDTH, _ROWS = 8, 8
# Rows that one task takes, and terms that are summed in one go.
_CHUNK = 512


def _make_block(rows: int) -> Any:
    """Make ``out[rows, :columns] (+)= sum over k of left[row, k] * right[k]``.

    Places count numbers from the start of the memory. ``right`` has full packs, one
    after the other; of the result only ``columns`` numbers of a pack are written.
    """

    @intrinsic
    def block(
        typing_context, left, left_at, left_row, left_step, right, right_at, depth,
        out, out_at, out_row, columns, add,
    ):  # fmt: skip
        word = types.intp
        kinds = (
            left, word, word, word, right, word, word, out, word, word, word,
            types.boolean,
        )  # fmt: skip

        def generate(context, builder, signature, given):
            memory = [
                make_array(kind)(context, builder, each).data
                for kind, each in zip(kinds, given, strict=True)
                if isinstance(kind, types.Array)
            ]
            places = [
                each
                for kind, each in zip(kinds, given, strict=True)
                if not isinstance(kind, types.Array)
            ]
            _write_block(builder, memory, places, rows)
            return context.get_dummy_value()

        return types.void(*kinds), generate

    return block


def _write_block(builder: Any, memory: Any, places: Any, rows: int) -> None:
    """Write the instructions of a block: all else is ordinary numba."""
    left, right, out = memory
    left_at, left_row, left_step, right_at, depth, out_at, out_row, columns, add = (
        places
    )
    number, word = out.type.pointee, left_at.type
    pack = ir.VectorType(number, _WIDTH)
    align = 8 if isinstance(number, ir.DoubleType) else 4
    nothing = constant(pack, 0.0)
    totals = [cgutils.alloca_once_value(builder, nothing) for _ in range(rows)]
    starts = [
        builder.add(left_at, builder.mul(left_row, word(row))) for row in range(rows)
    ]
    with cgutils.for_range(builder, depth) as loop:
        at = builder.add(right_at, builder.mul(loop.index, word(_WIDTH)))
        place = builder.bitcast(builder.gep(right, [at]), pack.as_pointer())
        terms = builder.load(place, align=align)
        step = builder.mul(loop.index, left_step)
        for start, total in zip(starts, totals, strict=True):
            factor = builder.load(builder.gep(left, [builder.add(start, step)]))
            factor = everywhere(builder, factor, _WIDTH)
            builder.store(fused(builder, factor, terms, builder.load(total)), total)
    to = out_at
    for total in totals:
        _write_first(builder, out, to, total, columns, add)
        to = builder.add(to, out_row)


def _write_first(
    builder: Any, out: Any, to: Any, total: Any, columns: Any, add: Any
) -> None:
    """Write the first numbers of a pack, or add them to what is there."""
    number = out.type.pointee
    align = 8 if isinstance(number, ir.DoubleType) else 4
    begin = builder.bitcast(total, number.as_pointer())
    done = cgutils.alloca_once_value(builder, columns.type(0))
    size = _WIDTH
    # Halves as long as they fit: a full pack, or 4 and 2 and 1 numbers of it.
    while size:
        fits = builder.icmp_signed(
            "!=", builder.and_(columns, columns.type(size)), columns.type(0)
        )
        with builder.if_then(fits):
            kind = ir.VectorType(number, size).as_pointer()
            at = builder.load(done)
            found = builder.load(
                builder.bitcast(builder.gep(begin, [at]), kind), align=align
            )
            place = builder.gep(out, [builder.add(to, at)])
            place = builder.bitcast(place, kind)
            with builder.if_else(add) as (then, otherwise):
                with then:
                    before = builder.load(place, align=align)
                    builder.store(builder.fadd(before, found), place, align=align)
                with otherwise:
                    builder.store(found, place, align=align)
            builder.store(builder.add(at, columns.type(size)), done)
        size //= 2


_many_rows, _one_row = _make_block(_ROWS), _make_block(1)


@njit
def _pack_rows(matrix, first, count, packed, at):
    """Lay rows side by side in packs of columns, filled up with 0."""
    columns = matrix.shape[1]
    zero = packed.dtype.type(0)
    for start in range(0, columns, _WIDTH):
        for k in range(count):
            for c in range(_WIDTH):
                inside = start + c < columns
                packed[at + c] = matrix[first + k, start + c] if inside else zero
            at += _WIDTH


@njit
def _rows_of_block(
    left, left_at, steps, packed, at, depth, out, out_at, out_row, rows, columns, add
):
    """Rows of the result, for all packs of columns."""
    left_row, left_step = steps
    for start in range(0, columns, _WIDTH):
        width = min(_WIDTH, columns - start)
        row = 0
        while row + _ROWS <= rows:
            _many_rows(
                left,
                left_at + row * left_row,
                left_row,
                left_step,
                packed,
                at,
                depth,
                out,
                out_at + row * out_row + start,
                out_row,
                width,
                add,
            )
            row += _ROWS
        while row < rows:
            _one_row(
                left,
                left_at + row * left_row,
                left_row,
                left_step,
                packed,
                at,
                depth,
                out,
                out_at + row * out_row + start,
                out_row,
                width,
                add,
            )
            row += 1
        at += depth * _WIDTH


def _rows_times(left, right, packed, out, add):
    """Many rows times a matrix that all of them share."""
    replicas, rows, columns = out.shape
    depth, size = left.shape[2], left.itemsize
    steps = left.strides[1] // size, left.strides[2] // size
    left_from = left.strides[0] // size
    out_from, out_row = out.strides[0] // size, out.strides[1] // size
    chunks = (rows + _CHUNK - 1) // _CHUNK
    for r in range(replicas):
        _pack_rows(right[r], 0, depth, packed[r], 0)
    for task in prange(replicas * chunks):
        r = task // chunks
        start = (task - r * chunks) * _CHUNK
        _rows_of_block(
            left,
            r * left_from + start * steps[0],
            steps,
            packed[r],
            0,
            depth,
            out,
            r * out_from + start * out_row,
            out_row,
            min(_CHUNK, rows - start),
            columns,
            add,
        )


def _sums_over_rows(left, right, packed, sums, out, add):
    """``left right`` where the sum goes over many rows of what ``left`` turns."""
    replicas, rows, columns = out.shape
    depth, size = left.shape[2], left.itemsize
    steps = left.strides[1] // size, left.strides[2] // size
    left_from = left.strides[0] // size
    chunks = sums.shape[1]
    for task in prange(replicas * chunks):
        r = task // chunks
        chunk = task - r * chunks
        start = chunk * _CHUNK
        terms = min(_CHUNK, depth - start)
        _pack_rows(right[r], start, terms, packed[r, chunk], 0)
        _rows_of_block(
            left,
            r * left_from + start * steps[1],
            steps,
            packed[r, chunk],
            0,
            terms,
            sums,
            task * rows * columns,
            columns,
            rows,
            columns,
            False,
        )
    zero = out.dtype.type(0)
    for r in range(replicas):
        for i in range(rows):
            for c in range(columns):
                total = zero
                for chunk in range(chunks):
                    total += sums[r, chunk, i, c]
                out[r, i, c] = out[r, i, c] + total if add else total


_ROWS_TIMES, _SUMS_OVER_ROWS = (
    compile_twice(kernel) for kernel in (_rows_times, _sums_over_rows)
)


def bind_product(left: Tensor, right: Tensor, out: Tensor, *, add: bool) -> KernelCall:
    """``out = left right``, or ``out += left right``, for each replica."""
    replicas, rows, columns = out.shape
    depth, packs = left.shape[2], -(-columns // _WIDTH)
    work = replicas * rows * columns * depth
    if left.stride(2) == 1 or depth <= 1:
        packed = out.new_empty(replicas, depth * packs * _WIDTH)
        return bind_kernel(_ROWS_TIMES, work, left, right, packed, out, add)
    chunks = -(-depth // _CHUNK)
    packed = out.new_empty(replicas, chunks, _CHUNK * packs * _WIDTH)
    sums = out.new_empty(replicas, chunks, rows, columns)
    return bind_kernel(_SUMS_OVER_ROWS, work, left, right, packed, sums, out, add)
