"""``dropout(activation(z + bias))`` and its way back as Triton programs.

Numbers are ``[replicas, rows, lanes, channels]``; lane 1 holds tangents. Distances
between replicas, rows and lanes come as one tuple per tensor. A mask is drawn where it
is used, so that none is stored.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators
import triton
import triton.language as tl

from gsebo.sparse.kernels.triton_tape_noise import kept, site_keys

_PLAIN = ["site", "threshold", "rows", "steps", "batch", "bias_step"]


@triton.jit
def _dropped(keys, positions, row, inside_row, place, channels, threshold, like):
    """Inverse keep rate or 0 at each place of a tile."""
    number = tl.load(positions + row, mask=inside_row, other=0)
    return kept(keys, number * channels + place, threshold, like)


@triton.jit
def _exponential_less_one(x):
    """``exp(x) - 1`` for ``x <= 0``, also where the difference would cancel."""
    series = tl.full(x.shape, 1, x.dtype)
    for number in tl.static_range(12, 1, -1):
        series = 1 + series * x * (1 / number)
    return tl.where(x > -0.25, series * x, tl.exp(x) - 1)


@triton.jit(do_not_specialize=_PLAIN)
def pointwise_rows(
    z,
    z_steps,
    bias,
    bias_tangent,
    bias_step,
    seeds,
    step,
    positions,
    site: tl.int64,
    threshold: tl.int64,
    out,
    out_steps,
    rows,
    channels,
    batch,
    KIND: tl.constexpr,
    LANES: tl.constexpr,
    BIASED: tl.constexpr,
    DROPPED: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """One tile of the result."""
    work = tl.program_id(0)
    blocks = tl.cdiv(channels, WIDTH)
    n = (work % batch).to(tl.int64)
    place = (work // batch) % blocks * WIDTH + tl.arange(0, WIDTH)[None, :]
    row = (work // batch // blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    inside = (row < rows) & (place < channels)
    at = z + n * z_steps[0] + row * z_steps[1] + place
    x = tl.load(at, mask=inside, other=0)
    if BIASED:
        x += tl.load(bias + n * bias_step + place, mask=place < channels, other=0)
    y = x
    slope = tl.full(x.shape, 1, x.dtype)
    if KIND == "relu":
        # Not the larger of x and 0: NaN has to stay.
        y = tl.where(x <= 0, 0, x)
        slope = tl.where(x <= 0, 0, slope)
    elif KIND == "elu":
        y = tl.where(x <= 0, _exponential_less_one(x), x)
        slope = tl.where(x <= 0, tl.exp(x), slope)
    if DROPPED:
        keys = site_keys(seeds, step, site, n)
        factor = _dropped(
            keys, positions, row, row < rows, place, channels, threshold, out
        )
        y *= factor
        slope *= factor
    to = out + n * out_steps[0] + row * out_steps[1] + place
    tl.store(to, y, mask=inside)
    if LANES == 2:
        t = tl.load(at + z_steps[2], mask=inside, other=0)
        if BIASED:
            tangent = bias_tangent + n * bias_step + place
            t += tl.load(tangent, mask=place < channels, other=0)
        tl.store(to + out_steps[2], t * slope, mask=inside)


@triton.jit(do_not_specialize=[*_PLAIN, "sum_step"])
def pointwise_back_rows(
    z,
    z_steps,
    bias,
    bias_tangent,
    bias_step,
    seeds,
    step,
    positions,
    site: tl.int64,
    threshold: tl.int64,
    grad,
    grad_steps,
    to_z,
    to_steps,
    sums,
    sum_step,
    rows,
    channels,
    steps,
    batch,
    KIND: tl.constexpr,
    LANES: tl.constexpr,
    BIASED: tl.constexpr,
    DROPPED: tl.constexpr,
    ADD: tl.constexpr,
    ADD_SUMS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """``steps`` tiles of the gradient by ``z``, one below the other, and their sums.

    ``to_z`` may be the memory of ``grad``.
    """
    work = tl.program_id(0)
    blocks = tl.cdiv(channels, WIDTH)
    n = (work % batch).to(tl.int64)
    place = (work // batch) % blocks * WIDTH + tl.arange(0, WIDTH)[None, :]
    chunk = (work // batch // blocks).to(tl.int64)
    keys = (tl.full([], 0, tl.uint32), tl.full([], 0, tl.uint32))
    if DROPPED:
        keys = site_keys(seeds, step, site, n)
    total = tl.zeros([ROWS, WIDTH], dtype=grad.dtype.element_ty)
    for number in range(0, steps):
        row = (chunk * steps + number) * ROWS + tl.arange(0, ROWS)[:, None]
        inside = (row < rows) & (place < channels)
        g_at = grad + n * grad_steps[0] + row * grad_steps[1] + place
        to = to_z + n * to_steps[0] + row * to_steps[1] + place
        g = tl.load(g_at, mask=inside, other=0)
        slope = tl.full(g.shape, 1, g.dtype)
        if LANES == 2:
            change = tl.load(g_at + grad_steps[2], mask=inside, other=0)
        if DROPPED:
            factor = _dropped(
                keys, positions, row, row < rows, place, channels, threshold, grad
            )
            g *= factor
            if LANES == 2:
                change *= factor
        if KIND != "identity":
            z_at = z + n * z_steps[0] + row * z_steps[1] + place
            x = tl.load(z_at, mask=inside, other=0)
            at_bias = n * bias_step + place
            if BIASED:
                x += tl.load(bias + at_bias, mask=place < channels, other=0)
            if KIND == "relu":
                slope = tl.where(x <= 0, 0, slope)
            else:
                slope = tl.where(x <= 0, tl.exp(x), slope)
            if LANES == 2:
                change *= slope
                if KIND == "elu":
                    t = tl.load(z_at + z_steps[2], mask=inside, other=0)
                    if BIASED:
                        tangent = bias_tangent + at_bias
                        t += tl.load(tangent, mask=place < channels, other=0)
                    change += tl.where(x <= 0, g * slope * t, 0)
        g *= slope
        last = g
        if LANES == 2:
            last = change
            if ADD:
                change += tl.load(to + to_steps[2], mask=inside, other=0)
            tl.store(to + to_steps[2], change, mask=inside)
        if BIASED:
            total += last
        if ADD:
            g += tl.load(to, mask=inside, other=0)
        tl.store(to, g, mask=inside)
    if BIASED:
        found = tl.sum(total, 0)[None, :]
        to_sums = sums + n * sum_step + chunk * channels + place
        if ADD_SUMS:
            found += tl.load(to_sums, mask=place < channels, other=0)
        tl.store(to_sums, found, mask=place < channels)
