"""Targets that do all that must not happen; prints what the fuzzer says of each."""

import ctypes
import json
import sys
import time
from pathlib import Path
from typing import Any

from fuzz.engine import Fuzzer, Limits
from fuzz.target import Draw, Target, require
from hypothesis import strategies as st

from gsebo.errors import InvalidInput


class _Planted(Target):
    """Refuses every case, but for one number, which does harm."""

    def draw(self, draw: Draw) -> Any:
        return draw(st.integers(0, 9))

    def write(self, case: Any, place: Path) -> None:
        (place / "input").write_text(f"{case}")

    def read(self, case: Any, place: Path) -> None:
        if case == 7:
            self.harm(place)
        else:
            raise InvalidInput(f"{case} given; expected another.")

    def harm(self, place: Path) -> None:
        raise NotImplementedError


class Raises(_Planted):
    name = "raises"

    def harm(self, place: Path) -> None:
        raise TypeError("planted")


class Hangs(_Planted):
    name = "hangs"

    def harm(self, place: Path) -> None:
        time.sleep(60)


class Dies(_Planted):
    name = "dies"

    def harm(self, place: Path) -> None:
        ctypes.string_at(0)


class Allocates(_Planted):
    name = "allocates"

    def harm(self, place: Path) -> None:
        bytearray(2**40)


class HalfWrites(_Planted):
    name = "half-writes"

    def harm(self, place: Path) -> None:
        (place / "output").write_text("half")
        raise InvalidInput("nothing was written.")


class Overwrites(_Planted):
    name = "overwrites"

    def harm(self, place: Path) -> None:
        (place / "input").write_text("other")


class Accepts(_Planted):
    name = "accepts"

    def harm(self, place: Path) -> None:
        require(False, "what was written")


class ManyLines(_Planted):
    name = "many-lines"

    def harm(self, place: Path) -> None:
        error = InvalidInput()
        error.args = ("one\ntwo",)
        raise error


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    targets = [kind() for kind in _Planted.__subclasses__()]
    fuzzer = Fuzzer(
        targets, folder / "work", folder / "kept", Limits(seconds=1.0), lambda _: None
    )
    fuzzer.prepare()
    fuzzer.run(cases=20 * len(targets), seconds=60.0, from_seed=0, workers=2)
    told = {
        name: {"counts": tally.counts, "findings": tally.findings}
        for name, tally in fuzzer.tallies.items()
    }
    print(json.dumps(told))
