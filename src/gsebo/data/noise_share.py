"""How many of a number a percentage is."""

from gsebo.errors import InvalidInput


def share_of(percent: int, total: int) -> int:
    """Return so many percent of a number, rounded, halves up.

    >>> share_of(10, 120), share_of(50, 3)
    (12, 2)

    Raises:
        InvalidInput: ``percent`` is not from 0 to 100.
    """
    if not 0 <= percent <= 100:
        raise InvalidInput(f"{percent} percent given: expected 0 to 100.")
    return (percent * total + 50) // 100
