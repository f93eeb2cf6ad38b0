"""How every benchmark reads its arguments: a bad one is a sentence and exit code 2."""

import argparse
import sys
from typing import Any, NoReturn, final

from benchmarks.packages import CONTENDERS
from benchmarks.setting import BACKBONES


@final
class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Print the sentence and exit with 2."""
        print(f"{self.prog}: {message}.", file=sys.stderr)
        raise SystemExit(2)


def add_cases(parser: argparse.ArgumentParser, **defaults: Any) -> None:
    """Arguments that span the cases of a comparison.

    Args:
        parser: Where to add them.
        defaults: Of ``datasets``, ``backbones``, ``hidden``, ``tau``, ``who``.
    """
    parser.add_argument("--datasets", nargs="+", default=defaults["datasets"])
    parser.add_argument(
        "--backbones",
        nargs="+",
        choices=BACKBONES,
        default=defaults.get("backbones", list(BACKBONES)),
    )
    parser.add_argument(
        "--hidden", nargs="+", type=count, default=defaults.get("hidden", [16])
    )
    parser.add_argument("--tau", type=count, default=defaults.get("tau", 10))
    add_who(parser)


def add_who(parser: argparse.ArgumentParser) -> None:
    """Which contenders take part."""
    parser.add_argument(
        "--who", nargs="+", choices=CONTENDERS, default=list(CONTENDERS)
    )


def count(text: str) -> int:
    """A whole number of at least 1; ``1e6`` is one."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if number < 1 or number != int(number):
        raise argparse.ArgumentTypeError(
            f"{text!r} given, expected a whole number of at least 1"
        )
    return int(number)
