"""Triton programs for the way back from scores of nodes to messages and weights."""

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators
import triton
import triton.language as tl


@triton.jit
def _to_target(sums, node, head, known, HEADS: tl.constexpr, LANES: tl.constexpr):
    """Gradient by a target's score: ``Σ s A d - (Σ A d) (Σ s A)``, and its tangent."""
    at = sums + node * (3 * LANES * HEADS) + head
    mean = tl.load(at, mask=known, other=0)
    slopes = tl.load(at + 2 * LANES * HEADS, mask=known, other=0)
    plain = tl.load(at + LANES * HEADS, mask=known, other=0) - mean * slopes
    change = plain
    if LANES == 2:
        change = tl.load(at + 3 * HEADS, mask=known, other=0)
        change -= tl.load(at + HEADS, mask=known, other=0) * slopes
        change -= tl.load(at + 5 * HEADS, mask=known, other=0) * mean
    return plain, change


_COUNTS = ["num_rows", "num_columns", "chunks", "steps", "batch", "weight_step"]


@triton.jit(do_not_specialize=_COUNTS)
def nodes_back(
    message,
    message_steps,
    weight,
    tangent,
    weight_step,
    sums,
    to_source,
    to_message,
    to_steps,
    to_weight,
    num_rows,
    num_columns,
    chunks,
    steps,
    size,
    batch,
    ADD: tl.constexpr,
    HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
    LANES: tl.constexpr,
    OUT_LANES: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Gradient by the messages through the scores, and sums of that by the weight.

    Of ``steps`` tiles, one below the other. With tangents the sums are the tangents,
    and with one lane less in ``to_message`` it is the tangent alone.
    """
    blocks = tl.cdiv(size, WIDTH)
    work = tl.program_id(0)
    n = (work % batch).to(tl.int64)
    chunk = (work // batch // blocks).to(tl.int64)
    place = (work // batch) % blocks * WIDTH + tl.arange(0, WIDTH)[None, :]
    head = place // CHANNELS
    in_size = place < size
    at = n * weight_step + 2 * place
    target, source = (
        tl.load(weight + at, mask=in_size, other=0),
        tl.load(weight + at + 1, mask=in_size, other=0),
    )
    message += n * message_steps[0]
    to_message += n * to_steps[0]
    sums += n * num_rows * (3 * LANES * HEADS)
    to_source += n * num_columns * (LANES * HEADS)
    by_target = tl.zeros([ROWS, WIDTH], dtype=to_weight.dtype.element_ty)
    by_source = tl.zeros([ROWS, WIDTH], dtype=to_weight.dtype.element_ty)
    for number in range(0, steps):
        node = (chunk * steps + number) * ROWS + tl.arange(0, ROWS)[:, None]
        inside = (node < num_columns) & in_size
        known = (node < num_rows) & in_size
        t, t_change = _to_target(sums, node, head, known, HEADS, LANES)
        s_at = to_source + node * (LANES * HEADS) + head
        s = tl.load(s_at, mask=inside, other=0)
        x = tl.load(message + node * message_steps[1] + place, mask=inside, other=0)
        to = to_message + node * to_steps[1] + place
        if OUT_LANES == LANES:
            found = t * target + s * source
            if ADD:
                found += tl.load(to, mask=inside, other=0)
            tl.store(to, found, mask=inside)
        if LANES == 1:
            by_target += t * x
            by_source += s * x
        else:
            s_change = tl.load(s_at + HEADS, mask=inside, other=0)
            found = t_change * target + s_change * source
            change = tl.load(tangent + at, mask=in_size, other=0)
            found += t * change
            change = tl.load(tangent + at + 1, mask=in_size, other=0)
            found += s * change
            to += (OUT_LANES - 1) * to_steps[2]
            if ADD:
                found += tl.load(to, mask=inside, other=0)
            tl.store(to, found, mask=inside)
            y_at = message + node * message_steps[1] + message_steps[2] + place
            y = tl.load(y_at, mask=inside, other=0)
            by_target += t * y + t_change * x
            by_source += s * y + s_change * x
    to = to_weight + ((n * chunks + chunk) * size + place) * 2
    tl.store(to, tl.sum(by_target, 0)[None, :], mask=in_size)
    tl.store(to + 1, tl.sum(by_source, 0)[None, :], mask=in_size)
