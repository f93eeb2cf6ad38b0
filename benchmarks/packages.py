"""Who takes part, and which packages they need. Nothing large is imported here."""

from importlib import import_module
from importlib.util import find_spec

from benchmarks.failure import BenchmarkError

OURS = "ours"
# Each is called after the package that it needs besides torch, if there is one.
PLAIN = "torch"
LIBRARIES = ("torchopt", "higher")
PEERS = (PLAIN, *LIBRARIES)
CONTENDERS = (OURS, *PEERS)
# What tables call them.
TITLES = {PLAIN: "plain torch"}


def require_installed(names: list[str]) -> None:
    """Raise if a peer that was asked for is not on this machine."""
    for name in names:
        if name in PEERS and find_spec(name) is None:
            raise BenchmarkError(
                f"{name} is not installed: expected pip install -e '.[bench]', or "
                "--who without it."
            )


def load_package(who: str) -> None:
    """Import what a contender needs, which otherwise happens when it is built."""
    if who in PEERS:
        import_module(f"benchmarks.peers.with_{who}")
