"""How much memory of its own a process held at most while something was going on.

Resident memory counts pages of mapped files too, which the system can take back at any
time; private memory is what nobody but the process can give back.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar, final

from benchmarks.process_memory import peak_bytes, private_bytes, reset_peak

T = TypeVar("T")

_SECONDS_BETWEEN = 0.02


@final
class PrivatePeak:
    """Looks at the private memory again and again, as long as the context lasts.

    Attributes:
        most: Bytes at most so far.
    """

    def __init__(self) -> None:
        self.most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "PrivatePeak":
        self.most = private_bytes()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while True:
            self.most = max(self.most, private_bytes())
            if self._over.wait(_SECONDS_BETWEEN):
                return


def memory_of(call: Callable[[], T], device: str) -> tuple[T, dict[str, Any]]:
    """Call, and say what the process (and a GPU) held before and at most."""
    import torch

    on_gpu = device.startswith("cuda")
    resident = reset_peak()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    before = private_bytes()
    with PrivatePeak() as private:
        result = call()
    found: dict[str, Any] = {
        "idle_bytes": resident,
        "peak_bytes": peak_bytes(),
        "idle_private_bytes": before,
        "peak_private_bytes": private.most,
    }
    if on_gpu:
        found["peak_gpu_bytes"] = int(torch.cuda.max_memory_allocated())
    return result, found
