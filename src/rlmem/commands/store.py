"""``rlmem store``: what a store of snapshots holds, whether it is sound, and what it can be made to be."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from rlmem.commands.output import console, print_json, waiting
from rlmem.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from rlmem.store import SnapshotInfo, Store

    Progress: TypeAlias = Callable[[int, int], None]

NAME: Final = "store"
HELP: Final = "snapshots on disk or in a bucket: list, show, verify, collect, copy, export"
DESCRIPTION: Final = (
    "Look after a store of snapshots: a folder, or a bucket (s3://, gs://). Credentials for buckets come from the "
    "environment, as other tools take them. Each action takes --json."
)
_URL: Final = "a folder, file://, s3:// or gs://"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what can be done with a store."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for add in (_add_ls, _add_show, _add_verify, _add_gc, _add_copy, _add_export):
        add(actions)


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked, and return 0, or 1 where the store has a fault."""
    try:
        import rlmem.store  # noqa: F401 - so that a missing library is named before anything else
    except ModuleNotFoundError as error:
        raise MissingExtra(library=error.name or "a library", extra="store", purpose="rlmem store") from None
    code: int = arguments.act(arguments)
    return code


def _action(actions: Any, name: str, act: Callable[..., int], *, words: str, example: str) -> argparse.ArgumentParser:
    """Return the parser of an action, with the arguments that all of them have."""
    parser: argparse.ArgumentParser = actions.add_parser(
        name,
        help=words,
        description=f"{words[0].upper()}{words[1:]}.",
        epilog=f"example: {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("url", metavar="URL", help=_URL)
    parser.set_defaults(act=act)
    return parser


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _add_step(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--step", type=int, metavar="N", help="the newest snapshot of step N (default: the newest)")


def _open(url: str, *, create: bool = False) -> Store:
    from rlmem.store import Store

    plain = url.startswith("s3://") and os.environ.get("AWS_ALLOW_HTTP", "").lower() == "true"
    return Store.open(url, create=create, options={"allow_http": "true"} if plain else None)


def _show(arguments: argparse.Namespace, as_dict: Callable[[], Any], as_text: Callable[[], Any]) -> None:
    if arguments.json:
        print_json(as_dict())
    else:
        console().print(as_text())


@contextmanager
def _progress(words: str) -> Iterator[Progress | None]:
    """Show on standard error, and only to a person, how many bytes of how many are done."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(words, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


# --- ls and show -----------------------------------------------------------------------------------------------------


def _add_ls(actions: Any) -> None:
    words = "snapshots, newest first, with their sizes: logical, stored, shared with others"
    _add_json(_action(actions, "ls", _ls, words=words, example="rlmem store ls runs/pong"))


def _ls(arguments: argparse.Namespace) -> int:
    from rlmem.errors import CorruptObjectError
    from rlmem.report import store as report

    store = _open(arguments.url)
    try:
        with waiting(f"listing {store.url}"):
            sizes = store.sizes()
    except CorruptObjectError as error:
        infos, problem = store.snapshots(), error.reason
        _show(
            arguments,
            lambda: report.names_to_dict(store.url, infos, problem),
            lambda: report.names_report(store.url, infos, problem),
        )
        return 1
    _show(arguments, lambda: report.sizes_to_dict(store.url, sizes), lambda: report.sizes_report(store.url, sizes))
    return 0


def _add_show(actions: Any) -> None:
    words = "what a snapshot holds: its parts, their shapes and sizes, and what was said about it"
    parser = _action(actions, "show", _show_one, words=words, example="rlmem store show runs/pong --step 200000")
    _add_step(parser)
    _add_json(parser)


def _show_one(arguments: argparse.Namespace) -> int:
    from rlmem.report import store as report
    from rlmem.store.overview import object_sizes, parts_of

    store = _open(arguments.url)
    snapshot = store.load(arguments.step)
    with waiting(f"listing {store.url}"):
        there = object_sizes(store)
    shown = report.Shown(
        url=store.url,
        info=snapshot.info,
        metadata=snapshot.metadata,
        parts=parts_of(store.manifest(snapshot.info), there),
        stored_bytes=sum(there.get(digest, 0) for digest in store.manifest(snapshot.info).digests()),
    )
    _show(arguments, lambda: report.snapshot_to_dict(shown), lambda: report.snapshot_report(shown))
    return 0


# --- verify ----------------------------------------------------------------------------------------------------------


def _add_verify(actions: Any) -> None:
    words = "read everything that any snapshot names, and say what is not as it was written; exit code 1 if anything"
    _add_json(_action(actions, "verify", _verify, words=words, example="rlmem store verify s3://bucket/runs/pong"))


def _verify(arguments: argparse.Namespace) -> int:
    from rlmem.report import store as report
    from rlmem.store.overview import newest_sound, users_of

    store = _open(arguments.url)
    with _progress("verifying") as progress:
        found = store.verify(progress)
    verified = report.Verified(
        url=store.url,
        verification=found,
        needed_for=users_of(store, found.faults),
        newest_sound=newest_sound(store, found),
    )
    _show(arguments, lambda: report.verification_to_dict(verified), lambda: report.verification_report(verified))
    return 0 if found.is_sound else 1


# --- gc --------------------------------------------------------------------------------------------------------------


def _add_gc(actions: Any) -> None:
    words = "remove all but the newest snapshots, and what no snapshot names any more"
    parser = _action(actions, "gc", _gc, words=words, example="rlmem store gc runs/pong --keep 5 --dry-run")
    parser.add_argument("--keep", type=int, default=3, metavar="N", help="keep the N newest (default 3)")
    parser.add_argument("--keep-every", type=int, metavar="N", help="also keep the first of each N steps")
    parser.add_argument("--dry-run", action="store_true", help="say what would be removed, and remove nothing")
    _add_json(parser)


def _gc(arguments: argparse.Namespace) -> int:
    from rlmem.report import store as report
    from rlmem.store.overview import preview, waiting_bytes

    store = _open(arguments.url)
    with waiting(f"collecting in {store.url}"):
        before = len(store.snapshots())
        collect = (lambda **how: preview(store, **how)) if arguments.dry_run else store.collect
        collected = collect(keep=arguments.keep, keep_every=arguments.keep_every)
        left = waiting_bytes(store, collected, done=not arguments.dry_run)
    facts = {"kept": before - len(collected.snapshots), "waiting_bytes": left, "dry_run": arguments.dry_run}
    _show(
        arguments,
        lambda: report.collected_to_dict(store.url, collected, **facts),
        lambda: report.collected_report(store.url, collected, **facts),
    )
    return 0


# --- copy ------------------------------------------------------------------------------------------------------------


def _add_copy(actions: Any) -> None:
    words = "copy snapshots to another store; only what is missing there, so a stopped copy goes on when called again"
    parser = _action(actions, "copy", _copy, words=words, example="rlmem store copy runs/pong s3://bucket/runs/pong")
    parser.add_argument("target", metavar="TARGET", help=f"{_URL}; begun where there is none")
    parser.add_argument("--step", type=int, metavar="N", help="only the newest snapshot of step N (default: all)")
    _add_json(parser)


def _copy(arguments: argparse.Namespace) -> int:
    from rlmem.report import store as report
    from rlmem.store.overview import objects_named

    source = _open(arguments.url)
    wanted = _wanted(source, arguments.step)
    target = _open(arguments.target, create=True)
    if source.url == target.url:
        raise InputError(f"a copy must go to another store, but {target.url} is the same")
    with _progress("copying") as progress:
        copied = source.copy_to(target, snapshots=wanted, progress=progress)
    present = objects_named(source, wanted) - copied.objects
    _show(
        arguments,
        lambda: report.copied_to_dict(source.url, target.url, copied, present=present),
        lambda: report.copied_report(source.url, target.url, copied, present=present),
    )
    return 0


def _wanted(source: Store, step: int | None) -> list[SnapshotInfo]:
    return source.snapshots() if step is None else [source.load(step).info]


# --- export ----------------------------------------------------------------------------------------------------------


def _add_export(actions: Any) -> None:
    words = "write a part of a snapshot, or all parts under a path, to .npz or HDF5; a replay buffer as Minari episodes"
    example = "rlmem store export runs/pong replay_buffer pong/main_data.hdf5"
    parser = _action(actions, "export", _export, words=words, example=example)
    parser.add_argument("path", metavar="PATH", help="a part's path, or what several begin with; . for everything")
    parser.add_argument("out", metavar="OUT", help="a file that ends in .npz, .hdf5 or .h5")
    _add_step(parser)
    parser.add_argument("--compress", action="store_true", help="smaller and slower: deflate")
    parser.add_argument("--force", action="store_true", help="write over a file that is there")
    _add_json(parser)


def _export(arguments: argparse.Namespace) -> int:
    from rlmem.report import store as report
    from rlmem.store.export import export, exported_bytes

    store = _open(arguments.url)
    snapshot = store.load(arguments.step)
    path = arguments.path.rstrip("/") or "."
    total, done = exported_bytes(snapshot, path), 0
    with _progress("exporting") as progress:

        def written(nbytes: int) -> None:
            nonlocal done
            done += nbytes
            if progress is not None:
                progress(done, max(total, done))

        exported = export(
            snapshot, path, arguments.out, compress=arguments.compress, overwrite=arguments.force, written=written
        )
    _show(
        arguments,
        lambda: report.exported_to_dict(store.url, path, snapshot.info, exported),
        lambda: report.exported_report(path, snapshot.info, exported),
    )
    return 0
