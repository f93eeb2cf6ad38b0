"""How many pairs an attack may change, as a user writes it."""

import math

from gsebo.errors import InvalidInput


def read_budget(budget: int | str, total: int, what: str = "edges") -> int:
    """How many pairs an attack may change: a number, or so many percent of a total.

    A share is rounded, halves up.

    >>> read_budget("5%", 200), read_budget("12.5 %", 4), read_budget("7", 200)
    (10, 1, 7)
    """
    text, number = str(budget).strip(), None
    if not isinstance(budget, bool | float):
        try:
            is_share = text.endswith("%")
            number = float(text[:-1]) if is_share else int(text)
        except ValueError:
            number = None
    if number is None or not math.isfinite(number) or not 0 <= number <= 2**53:
        raise InvalidInput(
            f"budget={budget!r:.60} given; expected a number of pairs, such as 50, or "
            f"a share of the {what}, such as '5%'."
        )
    return math.floor(number * total / 100 + 0.5) if is_share else int(number)
