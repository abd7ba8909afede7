"""Parts of a snapshot as files that other tools read: NumPy's .npz, HDF5, and the HDF5 of Minari datasets.

What is written goes through memory a window at a time. A tensor is held as a whole, and a lean column as lean as it is;
nothing else is.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Protocol, TypeAlias

import numpy as np

from rlmem.errors import InputError, MissingExtra, StoreError, StoreUnavailable
from rlmem.store.cells import ArrayCells, Cells, ColumnCells, WholeCells, at_a_time
from rlmem.store.entries import ArrayEntry, ColumnEntry, JsonEntry, TensorsEntry
from rlmem.store.minari_file import MAIN_FILE, EpisodesWritten, Replay, find_buffer
from rlmem.store.minari_file import write as write_episodes
from rlmem.store.naming import object_name
from rlmem.store.reading import Snapshot
from rlmem.store.tensor_files import BadFile, tensors_in

Written: TypeAlias = Callable[[int], None]
"""Told how many bytes of arrays were written since the last time."""

EVERYTHING: Final = "."
_HDF5: Final = (".hdf5", ".h5")
_COLUMNS: Final = "columns/"
"""Where a saved buffer has its lean columns, beside its plain arrays; in a file they stand among these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedArray:
    """An array in the file that was written."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written. ``layout`` is ``npz``, ``hdf5`` or ``minari``; the last has episodes in place of arrays."""

    files: tuple[Path, ...]
    layout: str
    arrays: tuple[ExportedArray, ...]
    nbytes: int
    episodes: int | None = None
    steps: int | None = None
    notes: tuple[str, ...] = ()


def export(
    snapshot: Snapshot,
    path: str,
    out: str | os.PathLike[str],
    *,
    compress: bool = False,
    overwrite: bool = False,
    written: Written | None = None,
) -> Exported:
    """Write a part, or all parts under a path, to a file whose ending says the format: .npz, .hdf5 or .h5.

    A replay buffer goes to HDF5 as episodes, in the layout of Minari. The file appears when it is complete.
    """
    target = Path(out)
    if target.suffix not in (".npz", *_HDF5):
        raise InputError(f"the file must end in .npz, .hdf5 or .h5, but got {target.name!r}")
    if target.exists() and not overwrite:
        raise InputError(f"{target} is there already: will not overwrite it without --force")
    chosen = parts_under(snapshot, path)
    told = written or (lambda _nbytes: None)
    with _telling(target), _completed(target) as unfinished:
        if target.suffix == ".npz":
            return _to_npz(snapshot, chosen, target, unfinished, compress, told)
        return _to_hdf5(snapshot, path, chosen, target, unfinished, compress, told)


def parts_under(snapshot: Snapshot, path: str) -> dict[str, str]:
    """Return the parts at or under a path, and what each is called in the file.

    Where a buffer has a part beside it that describes it (``replay_buffer.json``), that one comes along.
    """
    if path == EVERYTHING:
        return {each: each for each in snapshot.paths()}
    under = [each for each in snapshot.paths() if each.startswith(f"{path}/")]
    inside = {each: each[len(path) + 1 :].removeprefix(_COLUMNS) for each in under}
    beside = [each for each in (path, f"{path}.json") if each in snapshot.paths()]
    if not inside:
        snapshot.entry(path)  # raises and names what there is
    return {each: each.rpartition("/")[2] for each in beside} | inside


@contextmanager
def _telling(target: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "unable to" not in str(error).lower():
            raise
        reason = getattr(error, "strerror", None) or error
        raise StoreUnavailable(f"cannot write {target}: {reason}") from error


@contextmanager
def _completed(target: Path) -> Iterator[Path]:
    """Give a name to write under, which becomes the target's when all went well and is removed otherwise."""
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.unfinished")
    try:
        yield unfinished
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


# --- what there is to write ------------------------------------------------------------------------------------------


def _arrays(snapshot: Snapshot, path: str, name: str, notes: list[str]) -> Iterator[tuple[str, Cells]]:
    """Yield the arrays of a part under the names that they get, each let go of before the next."""
    entry = snapshot.entry(path)
    if isinstance(entry, ArrayEntry):
        yield name, ArrayCells(snapshot, path)
    elif isinstance(entry, ColumnEntry):
        yield from _column_arrays(snapshot, path, name)
    elif isinstance(entry, TensorsEntry):
        yield from _tensors(snapshot, entry, name, notes)


def _column_arrays(snapshot: Snapshot, path: str, name: str) -> Iterator[tuple[str, Cells]]:
    column = snapshot.column(path)
    cells = ColumnCells(column)
    if cells.has_gaps:
        raise StoreError(
            f"{path!r}: its oldest rows were forgotten, so rows cannot stand where they stood; export the whole buffer "
            "to .hdf5, where episodes begin at the oldest row that is left"
        )
    yield name, cells
    if column.follows:
        yield next_name(name), ColumnCells(column, following=True)


def next_name(name: str) -> str:
    """Return what the observations that followed are called: ``next_observations`` beside ``observations``."""
    words = name.split("/")
    place = words.index("observations") if "observations" in words else len(words) - 1
    return "/".join([*words[:place], f"next_{words[place]}", *words[place + 1 :]])


def _tensors(snapshot: Snapshot, entry: TensorsEntry, name: str, notes: list[str]) -> Iterator[tuple[str, Cells]]:
    for ref, _ in entry.files:
        try:
            found, formats = tensors_in(snapshot._object(ref))
        except BadFile as error:
            raise snapshot._corrupt(object_name(ref.digest), str(error)) from error
        for tensor, array in found.items():
            if tensor in formats:
                notes.append(f"{name}/{tensor}: {formats[tensor]}, which NumPy does not have, as its bits")
            yield f"{name}/{tensor}", WholeCells(array)


# --- writing ---------------------------------------------------------------------------------------------------------


class _Sink(Protocol):
    def array(self, name: str, cells: Cells, written: Written) -> None: ...

    def json(self, name: str, value: Any) -> None: ...


def _write_all(
    snapshot: Snapshot, chosen: dict[str, str], sink: _Sink, written: Written, notes: list[str]
) -> tuple[ExportedArray, ...]:
    made: dict[str, ExportedArray] = {}
    for path, name in chosen.items():
        if isinstance(snapshot.entry(path), JsonEntry):
            sink.json(name, snapshot.json(path))
        for each, cells in _arrays(snapshot, path, name, notes):
            if each in made:
                raise StoreError(f"two arrays would be called {each!r}: export the parts one by one")
            sink.array(each, cells, written)
            nbytes = math.prod(cells.shape) * cells.dtype.itemsize
            made[each] = ExportedArray(name=each, shape=cells.shape, dtype=cells.dtype.name, nbytes=nbytes)
    return tuple(made.values())


def _to_npz(
    snapshot: Snapshot, chosen: dict[str, str], target: Path, unfinished: Path, compress: bool, written: Written
) -> Exported:
    notes: list[str] = []
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(unfinished, "w", method, allowZip64=True) as archive:
        arrays = _write_all(snapshot, chosen, _Npz(archive), written, notes)
    nbytes = unfinished.stat().st_size
    return Exported(files=(target,), layout="npz", arrays=arrays, nbytes=nbytes, notes=tuple(notes))


class _Npz:
    """A zip of .npy files, as `numpy.load` reads them, written as they come."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    def array(self, name: str, cells: Cells, written: Written) -> None:
        described = {"descr": cells.dtype.str, "fortran_order": False, "shape": cells.shape}
        with self._archive.open(f"{name}.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array_header_1_0(member, described)
            _write_cells(member, cells, written)

    def json(self, name: str, value: Any) -> None:
        self._archive.writestr(f"{name.removesuffix('.json')}.json", json.dumps(value))


def _write_cells(member: IO[bytes], cells: Cells, written: Written) -> None:
    count, step = math.prod(cells.shape[: cells.lead]), at_a_time(cells)
    for start in range(0, count, step):
        window = np.ascontiguousarray(cells.read(start, min(start + step, count)))
        member.write(window.reshape(-1).view(np.uint8).data)
        written(window.nbytes)


def _to_hdf5(
    snapshot: Snapshot,
    path: str,
    chosen: dict[str, str],
    target: Path,
    unfinished: Path,
    compress: bool,
    written: Written,
) -> Exported:
    library = _h5py()
    notes: list[str] = []
    buffer = find_buffer(snapshot, chosen)
    if isinstance(buffer, Replay):
        made = write_episodes(
            library, buffer, snapshot, path, target=target, unfinished=unfinished, compress=compress, written=written
        )
        return _episodes(made)
    notes += [] if buffer is None else [buffer]
    with library.File(unfinished, "w", track_order=True) as file:
        file.attrs["rlmem_step"] = snapshot.step
        arrays = _write_all(snapshot, chosen, _Hdf5(library, file, compress), written, notes)
    nbytes = unfinished.stat().st_size
    return Exported(files=(target,), layout="hdf5", arrays=arrays, nbytes=nbytes, notes=tuple(notes))


def _episodes(made: EpisodesWritten) -> Exported:
    note = f"for a whole Minari dataset, export to FOLDER/{MAIN_FILE}"
    return Exported(
        files=made.files,
        layout="minari",
        arrays=(),
        nbytes=made.nbytes,
        episodes=made.episodes,
        steps=made.steps,
        notes=() if len(made.files) > 1 else (note,),
    )


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise MissingExtra(library="h5py", extra="hdf5", purpose="exporting to HDF5") from error
    return h5py


class _Hdf5:
    """A dataset for each array, in groups after their paths; JSON as text."""

    def __init__(self, library: Any, file: Any, compress: bool) -> None:
        self._library, self._file = library, file
        self._filter = "gzip" if compress else None

    def array(self, name: str, cells: Cells, written: Written) -> None:
        if not math.prod(cells.shape) or not cells.shape:
            value = cells.read(0, 1)[0] if not cells.shape else None
            self._file.create_dataset(name, shape=cells.shape, dtype=cells.dtype, data=value)
            return
        made = self._file.create_dataset(
            name, shape=cells.shape, dtype=cells.dtype, chunks=True, compression=self._filter
        )
        for place, start, stop in _slabs(cells):
            window = cells.read(start, stop)
            made[place] = window[0] if cells.lead == 0 else window
            written(window.nbytes)

    def json(self, name: str, value: Any) -> None:
        self._file.create_dataset(name, data=json.dumps(value), dtype=self._library.string_dtype())


def _slabs(cells: Cells) -> Iterator[tuple[Any, int, int]]:
    """Yield which part of an array to write, and which cells are in it."""
    if cells.lead == 0:
        yield ..., 0, 1
        return
    length, step = cells.shape[cells.lead - 1], at_a_time(cells)
    for number, outer in enumerate(np.ndindex(*cells.shape[: cells.lead - 1])):
        for start in range(0, length, step):
            stop = min(start + step, length)
            yield (*outer, slice(start, stop)), number * length + start, number * length + stop


def exported_bytes(snapshot: Snapshot, path: str) -> int:
    """Return how many bytes of arrays an export writes, for who shows how far it is."""
    return sum(_plain_bytes(snapshot, each) for each in parts_under(snapshot, path))


def _plain_bytes(snapshot: Snapshot, path: str) -> int:
    entry = snapshot.entry(path)
    if not isinstance(entry, ColumnEntry):
        return entry.nbytes
    try:
        head = entry.head
        cells = min(head["held"]["written"], head["rows"]) * head["n_envs"] * (2 if head["follows"] else 1)
        return int(cells * math.prod(head["shape"]) * np.dtype(head["dtype"]).itemsize)
    except (KeyError, TypeError, ValueError):
        return entry.nbytes
