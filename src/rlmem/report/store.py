"""Stores of snapshots, for people and for programs: what there is, whether it is sound, what was done to it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlmem.report.json import SCHEMA
from rlmem.store.export import Exported, ExportedArray
from rlmem.store.naming import SnapshotInfo
from rlmem.store.overview import PartInfo
from rlmem.store.upkeep import Collected, Copied, Fault, Sizes, SnapshotSize, Verification
from rlmem.units import format_bytes, plural

_MOST_SHOWN: Final = 20
_MOST_CHARACTERS: Final = 200
_PATH_WIDTH: Final = 40
"""Paths up to this long are not folded, however narrow the terminal."""


def _table(*columns: tuple[str, str]) -> Table:
    """Return a table of columns: what stands above each, and on which side it stands; only the left ones are folded."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, side in columns:
        table.add_column(name, justify="right" if side == "right" else "left", no_wrap=side == "right", overflow="fold")
    return table


def _add(table: Table, *cells: str, style: str = "") -> None:
    table.add_row(*(Text(cell) for cell in cells), style=style)


def _headline(word: str, style: str, url: str) -> Text:
    return Text.assemble((word, style), f"  {url}")


def _when(info: SnapshotInfo) -> str:
    return f"{info.committed:%Y-%m-%d %H:%M:%S}"


def _info(info: SnapshotInfo) -> dict[str, Any]:
    return {"step": info.step, "committed": info.committed.isoformat(), "name": info.name}


def _labels(infos: Iterable[SnapshotInfo]) -> str:
    return ", ".join(info.label for info in infos)


# --- ls --------------------------------------------------------------------------------------------------------------


def sizes_report(url: str, sizes: Sizes) -> RenderableType:
    """Return the total first, then the snapshots, newest first."""
    count = len(sizes.snapshots)
    if not count:
        return Group(_headline("EMPTY", "bold yellow", url), Text("no snapshot was committed here"), *_unnamed(sizes))
    words = f"{plural(count, 'snapshot')}, {format_bytes(sizes.stored_bytes)} stored"
    saved = f": {format_bytes(sizes.shared_bytes)} less than each by itself" if sizes.shared_bytes else ""
    table = _table(
        ("step", "right"), ("committed (UTC)", "right"), ("logical", "right"), ("stored", "right"), ("shared", "right")
    )
    for size in reversed(sizes.snapshots):
        shared = format_bytes(size.stored_bytes - size.own_bytes)
        step, when = f"{size.info.step:,}", _when(size.info)
        _add(table, step, when, format_bytes(size.logical_bytes), format_bytes(size.stored_bytes), shared)
    total = (format_bytes(sizes.logical_bytes), format_bytes(sizes.stored_bytes), format_bytes(sizes.shared_bytes))
    _add(table, "total", "", *total, style="bold")
    return Group(_headline(words + saved, "bold", url), Text(), table, *_unnamed(sizes))


def _unnamed(sizes: Sizes) -> list[RenderableType]:
    if not sizes.unnamed_bytes:
        return []
    words = f"{format_bytes(sizes.unnamed_bytes)} of it belongs to no snapshot: `rlmem store gc` removes what is old"
    return [Text(), Text(words, style="dim")]


def sizes_to_dict(url: str, sizes: Sizes) -> dict[str, Any]:
    """Return the listing as JSON has it."""
    return {
        "schema": SCHEMA,
        "url": url,
        "snapshots": [_size(size) for size in reversed(sizes.snapshots)],
        "logical_bytes": sizes.logical_bytes,
        "stored_bytes": sizes.stored_bytes,
        "shared_bytes": sizes.shared_bytes,
        "unnamed_bytes": sizes.unnamed_bytes,
        "problem": None,
    }


def _size(size: SnapshotSize) -> dict[str, Any]:
    return _info(size.info) | {
        "logical_bytes": size.logical_bytes,
        "stored_bytes": size.stored_bytes,
        "shared_bytes": size.stored_bytes - size.own_bytes,
    }


def names_report(url: str, infos: list[SnapshotInfo], problem: str) -> RenderableType:
    """Return a listing where a manifest cannot be read: what names alone say."""
    table = _table(("step", "right"), ("committed (UTC)", "right"))
    for info in reversed(infos):
        _add(table, f"{info.step:,}", _when(info))
    head = _headline(f"{plural(len(infos), 'snapshot')}, not all of them readable", "bold red", url)
    advice = Text("`rlmem store verify` says which of them are sound", style="green")
    return Group(head, Text(problem), advice, Text(), table)


def names_to_dict(url: str, infos: list[SnapshotInfo], problem: str) -> dict[str, Any]:
    """Return the same as JSON has it: sizes are unknown."""
    sizes = ("logical_bytes", "stored_bytes", "shared_bytes")
    unknown: dict[str, Any] = dict.fromkeys(sizes)
    listed = [_info(info) | unknown for info in reversed(infos)]
    return {"schema": SCHEMA, "url": url, "snapshots": listed, **unknown, "unnamed_bytes": None, "problem": problem}


# --- show ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A snapshot to be shown."""

    url: str
    info: SnapshotInfo
    metadata: Mapping[str, Any]
    parts: tuple[PartInfo, ...]
    stored_bytes: int


def snapshot_report(shown: Shown) -> RenderableType:
    """Return what a snapshot is, then its parts, then what was said about it."""
    logical = sum(part.logical_bytes for part in shown.parts)
    words = f"{plural(len(shown.parts), 'part')}, {format_bytes(logical)}, {format_bytes(shown.stored_bytes)} stored"
    table = _table(("path", "left"), ("kind", "left"), ("what", "left"), ("logical", "right"), ("stored", "right"))
    table.columns[0].no_wrap = all(len(part.path) <= _PATH_WIDTH for part in shown.parts)
    for part in shown.parts:
        sizes = format_bytes(part.logical_bytes), format_bytes(part.stored_bytes)
        _add(table, part.path, part.kind, _what(part), *sizes)
    head = Text.assemble((shown.info.label, "bold"), f"  {shown.url}")
    return Group(head, Text(words), Text(), table, *_metadata(shown.metadata))


def _what(part: PartInfo) -> str:
    if part.tensors is not None:
        return plural(part.tensors, "tensor")
    if part.shape is None:
        return "unreadable" if part.kind == "column" else "in the manifest" if not part.logical_bytes else ""
    shape = "×".join(map(str, part.shape)) or "one number"
    following = " with next" if part.follows else ""
    plain = f", {format_bytes(part.plain_bytes)} plain" if part.plain_bytes is not None else ""
    return f"{shape} {part.dtype}{following}{plain}"


def _metadata(metadata: Mapping[str, Any]) -> list[RenderableType]:
    if not metadata:
        return []
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in metadata.items():
        _add(table, _shortened(name, 40), _in_words(value))
    return [Text(), Text("metadata", style="bold"), table]


def _in_words(value: Any) -> str:
    if isinstance(value, dict) and value and all(isinstance(each, str | int | float) for each in value.values()):
        return _shortened(", ".join(f"{name} {each}" for name, each in value.items()), _MOST_CHARACTERS)
    return _shortened(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), _MOST_CHARACTERS)


def _shortened(text: str, most: int) -> str:
    """Return text without what could move a cursor; what is long is in --json."""
    plain = "".join(sign if sign.isprintable() else " " for sign in text)
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def snapshot_to_dict(shown: Shown) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "url": shown.url,
        "snapshot": _info(shown.info),
        "logical_bytes": sum(part.logical_bytes for part in shown.parts),
        "stored_bytes": shown.stored_bytes,
        "parts": [asdict(part) for part in shown.parts],
        "metadata": dict(shown.metadata),
    }


# --- verify ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A store that was verified: which parts need each faulty object, and the newest snapshot without a fault."""

    url: str
    verification: Verification
    needed_for: tuple[tuple[tuple[str, str], ...], ...]
    newest_sound: SnapshotInfo | None


def verification_report(verified: Verified) -> RenderableType:
    """Return the verdict first, then what can be restored, then each fault."""
    found = verified.verification
    read = f"{plural(found.snapshots, 'snapshot')}, {plural(found.objects, 'object')}, {format_bytes(found.nbytes)}"
    if found.is_sound:
        return Group(_headline("SOUND", "bold green", verified.url), Text(f"{read}: all as it was written"))
    head = _headline(plural(len(found.faults), "fault").upper(), "bold red", verified.url)
    parts: list[RenderableType] = [head, Text(f"{read} read"), _instead(verified.newest_sound)]
    for fault, needed_for in list(zip(found.faults, verified.needed_for, strict=True))[:_MOST_SHOWN]:
        parts += [Text(), *_fault(fault, needed_for)]
    if len(found.faults) > _MOST_SHOWN:
        parts += [Text(), Text(f"and {len(found.faults) - _MOST_SHOWN} more, in --json", style="dim")]
    return Group(*parts)


def _instead(info: SnapshotInfo | None) -> Text:
    if info is None:
        return Text("no snapshot is sound: take a copy of the store, if there is one", style="bold")
    return Text(f"the newest sound snapshot is {info.label}", style="green")


def _kind(fault: Fault, needed_for: tuple[tuple[str, str], ...]) -> str:
    if not fault.name.startswith("objects/"):
        return "manifest"
    return needed_for[0][0] if needed_for else "object"


def _reason(fault: Fault) -> str:
    """Return what is wrong, without the place, which stands above it."""
    return fault.reason.rpartition(f"{fault.name}: ")[2]


def _fault(fault: Fault, needed_for: tuple[tuple[str, str], ...]) -> tuple[RenderableType, ...]:
    paths = ", ".join(dict.fromkeys(path for _, path in needed_for))
    what = f"{_kind(fault, needed_for)} {paths}".rstrip()
    body = Text.assemble(f"{what}: {_reason(fault)}", "\n", (f"needed by {_labels(fault.snapshots)}", "dim"))
    return Text(fault.name, style="bold", overflow="fold"), Padding(body, (0, 0, 0, 2), expand=False)


def verification_to_dict(verified: Verified) -> dict[str, Any]:
    found, newest = verified.verification, verified.newest_sound
    return {
        "schema": SCHEMA,
        "url": verified.url,
        "sound": found.is_sound,
        "snapshots": found.snapshots,
        "objects": found.objects,
        "bytes": found.nbytes,
        "newest_sound": None if newest is None else _info(newest),
        "faults": [
            {
                "name": fault.name,
                "kind": _kind(fault, needed_for),
                "parts": [*dict.fromkeys(path for _, path in needed_for)],
                "reason": _reason(fault),
                "snapshots": [_info(info) for info in fault.snapshots],
            }
            for fault, needed_for in zip(found.faults, verified.needed_for, strict=True)
        ],
    }


# --- gc, copy, export ------------------------------------------------------------------------------------------------


def collected_report(url: str, collected: Collected, *, kept: int, waiting_bytes: int, dry_run: bool) -> RenderableType:
    """Return what was removed, or would be, and what has to wait."""
    verb = "would remove" if dry_run else "removed"
    words = f"{verb} {plural(len(collected.snapshots), 'snapshot')}, {plural(collected.objects, 'object')}"
    head = _headline(f"{words}, {format_bytes(collected.nbytes)}", "bold", url)
    lines: list[RenderableType] = [head, *(Text(f"  {info.label}", style="dim") for info in collected.snapshots)]
    lines.append(Text(f"{plural(kept, 'snapshot')} {'would stay' if dry_run else 'left'}"))
    if waiting_bytes:
        note = f"{format_bytes(waiting_bytes)} more belongs to no snapshot, and stays until it is an hour old: "
        lines.append(Text(note + "a run may be about to name it", style="dim"))
    return Group(*lines)


def collected_to_dict(
    url: str, collected: Collected, *, kept: int, waiting_bytes: int, dry_run: bool
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "url": url,
        "dry_run": dry_run,
        "removed": [_info(info) for info in collected.snapshots],
        "objects": collected.objects,
        "bytes": collected.nbytes,
        "kept": kept,
        "waiting_bytes": waiting_bytes,
    }


def copied_report(source: str, target: str, copied: Copied, *, present: int) -> RenderableType:
    """Return what had to be copied, and what was there already."""
    count = len(copied.snapshots)
    words = f"copied {plural(count, 'snapshot')}, {plural(copied.objects, 'object')}, {format_bytes(copied.nbytes)}"
    head = _headline(words if count else "nothing to copy", "bold", f"{source} → {target}")
    lines: list[RenderableType] = [head, Text(f"{plural(present, 'object')} there already")]
    return Group(*lines, *(Text(f"  {info.label}", style="dim") for info in copied.snapshots))


def copied_to_dict(source: str, target: str, copied: Copied, *, present: int) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "source": source,
        "target": target,
        "snapshots": [_info(info) for info in copied.snapshots],
        "objects": copied.objects,
        "bytes": copied.nbytes,
        "objects_present": present,
    }


def exported_report(path: str, info: SnapshotInfo, exported: Exported) -> RenderableType:
    """Return the files, then what is in them."""
    files = ", ".join(str(file) for file in exported.files)
    head = Text.assemble((f"wrote {format_bytes(exported.nbytes)}", "bold"), f"  {files}")
    source = "everything" if path == "." else path
    lines: list[RenderableType] = [head, Text(f"{source} of {info.label}, {_contents(exported)}")]
    if exported.arrays:
        lines += [Text(), _arrays(exported.arrays)]
    return Group(*lines, *(Text(note, style="dim") for note in exported.notes[:_MOST_SHOWN]))


def _contents(exported: Exported) -> str:
    if exported.episodes is None:
        return f"as {plural(len(exported.arrays), 'array')}"
    return f"as {plural(exported.episodes, 'episode')} of {plural(exported.steps or 0, 'step')}, in Minari's layout"


def _arrays(arrays: tuple[ExportedArray, ...]) -> Table:
    table = _table(("array", "left"), ("shape", "left"), ("dtype", "left"), ("bytes", "right"))
    for array in arrays[:_MOST_SHOWN]:
        _add(table, array.name, "×".join(map(str, array.shape)) or "–", array.dtype, format_bytes(array.nbytes))
    if len(arrays) > _MOST_SHOWN:
        _add(table, f"and {len(arrays) - _MOST_SHOWN} more, in --json", "", "", "")
    return table


def exported_to_dict(url: str, path: str, info: SnapshotInfo, exported: Exported) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "url": url,
        "path": path,
        "snapshot": _info(info),
        "layout": exported.layout,
        "files": [str(file) for file in exported.files],
        "bytes": exported.nbytes,
        "arrays": [asdict(array) for array in exported.arrays],
        "episodes": exported.episodes,
        "steps": exported.steps,
        "notes": [*exported.notes],
    }
