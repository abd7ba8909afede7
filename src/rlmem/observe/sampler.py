"""A process tree watched from outside: the largest sum of proportional shares that was seen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from rlmem.observe.proc import process_tree, pss_bytes

INTERVAL_S: Final = 0.01
_TICK_SAMPLES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePeak:
    """The largest reading of a process tree, and how it was got."""

    pss_bytes: int
    processes: int
    samples: int
    seconds: float

    @property
    def rate_hz(self) -> float:
        return self.samples / self.seconds if self.seconds else 0.0


class TreeSampler:
    """Reads a process tree over and over in a thread, and keeps the largest sum."""

    def __init__(self, pid: int, *, interval_s: float = INTERVAL_S, tick: Callable[[], None] | None = None) -> None:
        self._pid, self._interval_s, self._tick = pid, interval_s, tick
        self._peak, self._processes, self._samples = 0, 0, 0
        self._started = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="rlmem-sampler", daemon=True)

    def __enter__(self) -> TreeSampler:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def peak(self) -> TreePeak:
        return TreePeak(
            pss_bytes=self._peak,
            processes=self._processes,
            samples=self._samples,
            seconds=time.monotonic() - self._started,
        )

    def _sample(self) -> None:
        while not self._stop.wait(self._interval_s):
            pids = process_tree(self._pid)
            total = sum(pss_bytes(pid) for pid in pids)
            self._samples += 1
            if self._tick is not None and self._samples % _TICK_SAMPLES == 0:
                self._tick()
            if total > self._peak:
                self._peak, self._processes = total, len(pids)
