"""Saving in the background: `Saver.save` takes what it needs and returns; a thread writes.

What is sealed or will not change is only referred to. Tensors, which an optimizer changes in place, are copied while
they are small, and written at once when they are not; so are arrays that are said to be mutable. At most one snapshot
is being written: when the next comes before it is done, training waits, and is told so.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final

import numpy as np

from rlmem.errors import StoreError, StoreUnavailable
from rlmem.lean.parts import ColumnParts, take_apart
from rlmem.store.contents import ArrayPart, ColumnPart, Contents, Json, Part, Tensors
from rlmem.store.manifest import json_bytes, parse_json
from rlmem.store.naming import SnapshotInfo
from rlmem.store.store import GRACE_S, Store
from rlmem.store.writing import SnapshotWriter

COPIED_BYTES: Final = 32 * 2**20
"""Tensors of one snapshot are copied up to this size altogether; beyond it they are written before `save` returns."""

_BACKGROUND_NICE: Final = 10
_WORTH_A_WORD_S: Final = 0.5


class SaveWarning(RuntimeWarning):
    """A snapshot that was not written, or that training had to wait for."""


class Saver:
    """Writes snapshots of one training into a store, and keeps as many as are asked for.

    A store that is unavailable (a full disk, a bucket that does not answer) does not stop training: the next `save`
    warns once and tries again. `wait` and `close` raise what went wrong last. Anything else is raised by the next call.
    """

    def __init__(
        self,
        store: Store,
        *,
        keep: int | None = 3,
        keep_every: int | None = None,
        grace_s: float = GRACE_S,
        copied_bytes: int = COPIED_BYTES,
    ) -> None:
        self.store, self.keep, self.keep_every, self.grace_s = store, keep, keep_every, grace_s
        self.last: SnapshotInfo | None = None
        """The newest snapshot that this saver committed."""
        self.waited_s = 0.0
        """How long training has waited for snapshots to be written, altogether."""
        self._copied_bytes = copied_bytes
        self._thread: threading.Thread | None = None
        self._error: StoreError | None = None
        self._failing = self._said_slow = False

    @property
    def error(self) -> StoreError | None:
        """Why the last snapshot was not written, or None."""
        return self._error

    @property
    def is_writing(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def save(self, contents: Contents, *, step: int, metadata: Mapping[str, Any] | None = None) -> None:
        """Take a snapshot of what there is now and return; it is written in the background."""
        self._wait_for_the_last()
        self._surface()
        try:
            writer = self.store.begin(step=step)
            left = self._taken(writer, contents)
            said = parse_json(json_bytes(dict(metadata or {}), what="a snapshot's metadata"))
        except StoreUnavailable as error:
            self._error = error
            self._surface()
            return
        self._thread = threading.Thread(
            target=self._write, args=(writer, left, step, said), name="rlmem-saver", daemon=False
        )
        self._thread.start()

    def wait(self) -> SnapshotInfo | None:
        """Return the last snapshot once it is written; raise why it was not."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            raise self._error
        return self.last

    def close(self) -> None:
        """Wait for the last snapshot; raise why it was not written."""
        self.wait()

    def __enter__(self) -> Saver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except StoreError:
            if error is None:  # what stopped the training is worth more
                raise

    # --- in the training's thread ------------------------------------------------------------------------------------

    def _wait_for_the_last(self) -> None:
        if self._thread is None:
            return
        began = time.monotonic()
        self._thread.join()
        self._thread = None
        waited = time.monotonic() - began
        self.waited_s += waited
        if waited > _WORTH_A_WORD_S and not self._said_slow:
            self._said_slow = True
            warnings.warn(
                f"training waited {waited:.1f} s for the last snapshot to be written to {self.store.url}: it is slower "
                "than snapshots are taken; save less often (said once)",
                SaveWarning,
                stacklevel=4,
            )

    def _surface(self) -> None:
        """Say or raise why the last snapshot was not written."""
        error = self._error
        if error is None:
            self._failing = False
        elif not isinstance(error, StoreUnavailable):
            self._error = None
            raise error
        elif not self._failing:
            self._failing = True
            warnings.warn(
                f"a snapshot was not written: {error}; training goes on, and saving is tried again each time "
                "(said once until it works)",
                SaveWarning,
                stacklevel=4,
            )

    def _taken(self, writer: SnapshotWriter, contents: Contents) -> dict[str, Part | ColumnParts]:
        """Return what is left to write in the background, safe from what training does next."""
        left: dict[str, Part | ColumnParts] = {}
        room = self._copied_bytes
        for path, part in contents.items():
            if isinstance(part, Tensors):
                size = sum(int(tensor.nbytes) for tensor in part.tensors.values())
                if size > room:
                    writer.add(path, part)
                    continue
                room -= size
                copies = {name: np.array(tensor) for name, tensor in part.tensors.items()}
                left[path] = Tensors(tensors=copies, formats=dict(part.formats))
            elif isinstance(part, ArrayPart) and part.mutable:
                writer.add(path, part)
            elif isinstance(part, ColumnPart):
                left[path] = take_apart(part.column)
            elif isinstance(part, Json):
                left[path] = Json(value=parse_json(json_bytes(part.value, what=path)))
            else:
                left[path] = part
        return left

    # --- in the background -------------------------------------------------------------------------------------------

    def _write(
        self, writer: SnapshotWriter, left: dict[str, Part | ColumnParts], step: int, metadata: Mapping[str, Any]
    ) -> None:
        _step_back()
        try:
            while left:
                path = next(iter(left))
                writer.add(path, left.pop(path))
            self.last = self.store.commit(writer, step=step, metadata=metadata)
            self._error = None
            if self.keep is not None:
                self.store.collect(keep=self.keep, keep_every=self.keep_every, grace_s=self.grace_s)
        except StoreError as error:
            self._error = error
        except BaseException as error:
            self._error = StoreError(f"{self.store.url}: saving step {step} failed: {type(error).__name__}: {error}")
            self._error.__cause__ = error


def _step_back() -> None:
    """Let training have the processor first: on Linux a thread has a niceness of its own, which its threads inherit."""
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _BACKGROUND_NICE)
