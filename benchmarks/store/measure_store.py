"""What saving a replay buffer costs: seconds, bytes on disk and memory beyond the training's own.

Each way of saving runs in a process of its own, on a stock buffer of the same content, which is saved, changed by one
part in a hundred as training would change it, and saved again. Memory is the highest that the kernel saw the process
take, above what it had before the save. Plain sequential writing of as many bytes, in the same process just before, says
what the disk gives.

Bias: the disk's cache is warm, and everything is on one disk. Frames are random noise, so nothing can be compressed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import pickle
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parents[1] / "results" / "store"
FRAME_BYTES = 4 * 84 * 84
CHANGED = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", default=list(WAYS), metavar="WAY", help=f"of {', '.join(WAYS)}")
    parser.add_argument("--gigabytes", type=float, default=4.0, help="size of the buffer's observations (default 4)")
    parser.add_argument("--folder", type=Path, help="where to save (default: the temporary folder)")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments)))
        return
    arguments.results.mkdir(parents=True, exist_ok=True)
    rows = []
    for way in arguments.ways:
        done = subprocess.run([sys.executable, *sys.argv, "--one", way], capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{way}: {done.stderr.strip().splitlines()[-1]}", flush=True)
            continue
        rows.append(json.loads(done.stdout.strip().splitlines()[-1]))
        print(_line(rows[-1]), flush=True)
    result = {"gigabytes": arguments.gigabytes, "platform": platform.platform(), "rows": rows}
    (arguments.results / "stock.json").write_text(json.dumps(result, indent=1) + "\n")


def _line(row: dict[str, Any]) -> str:
    first, again = row["first"], row["again"]
    return (
        f"{row['way']:14} first {first['seconds']:7.1f} s, {first['written_bytes'] / 1e9:6.2f} GB, "
        f"{first['extra_bytes'] / 2**20:8.1f} MiB extra, {row['share_of_disk']:5.0%} of the disk's rate; again "
        f"{again['seconds']:6.1f} s, {again['written_bytes'] / 1e9:6.3f} GB for {row['new_bytes'] / 1e9:.3f} GB new"
    )


def measure(way: str, arguments: argparse.Namespace) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    try:
        buffer = _buffer(int(arguments.gigabytes * 1e9))
        save = WAYS[way](buffer, folder / "saved")
        rate = _disk_rate(folder / "plain", min(int(arguments.gigabytes * 1e9), 2**30))
        first = _saving(save, folder / "saved")
        new_bytes = _change(buffer)
        again = _saving(save, folder / "saved")
    finally:
        shutil.rmtree(folder)
    share = first["written_bytes"] / first["seconds"] / rate
    return {
        "way": way,
        "first": first,
        "again": again,
        "new_bytes": new_bytes,
        "disk_rate": rate,
        "share_of_disk": share,
    }


def _buffer(nbytes: int) -> Any:
    import gymnasium
    from stable_baselines3.common.buffers import ReplayBuffer

    rows = nbytes // (2 * FRAME_BYTES)
    space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    buffer = ReplayBuffer(rows, space, gymnasium.spaces.Discrete(4), device="cpu")
    rng = np.random.default_rng(0)
    for array in (buffer.observations, buffer.next_observations):
        for start in range(0, rows, 1000):
            part = array[start : start + 1000]
            part[:] = np.frombuffer(rng.bytes(part.nbytes), np.uint8).reshape(part.shape)
    buffer.full = True
    return buffer


def _change(buffer: Any) -> int:
    """Overwrite the oldest rows, as a full ring does; return how many bytes."""
    rows = len(buffer.observations) // CHANGED
    for array in (buffer.observations, buffer.next_observations):
        array[:rows] ^= 1
    buffer.pos = rows
    return int(2 * rows * FRAME_BYTES)


def _saving(save: Callable[[], None], target: Path) -> dict[str, Any]:
    from rlmem.observe import high_water_bytes, reset_high_water, rss_bytes

    before, there = rss_bytes(os.getpid()), _written(target)
    reset_high_water()
    started = time.perf_counter()
    save()
    os.sync()
    seconds = time.perf_counter() - started
    extra = high_water_bytes(os.getpid()) - before
    files = _written(target)
    return {
        "seconds": seconds,
        "extra_bytes": max(extra, 0),
        "written_bytes": sum(size for name, (size, when) in files.items() if there.get(name) != (size, when)),
    }


def _written(target: Path) -> dict[str, tuple[int, int]]:
    """Return the size and the time of each file, to tell which were written since."""
    paths = [path for path in target.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in paths}


def _disk_rate(path: Path, nbytes: int) -> float:
    block = os.urandom(2**22)
    started = time.perf_counter()
    with path.open("wb") as file:
        for _ in range(nbytes // len(block)):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    rate = nbytes / (time.perf_counter() - started)
    path.unlink()
    return rate


# --- ways of saving ------------------------------------------------------------------------------------------------


def _file(folder: Path) -> Path:
    """Return where a way that writes one file puts it."""
    folder.mkdir(exist_ok=True)
    return folder / "buffer.pkl"


def _sb3(buffer: Any, target: Path) -> Callable[[], None]:
    from stable_baselines3.common.save_util import save_to_pkl

    return lambda: save_to_pkl(_file(target), buffer)


def _gzip(buffer: Any, target: Path) -> Callable[[], None]:
    def save() -> None:
        with gzip.open(_file(target), "wb", compresslevel=1) as file:
            pickle.dump(buffer, file)

    return save


def _torch(buffer: Any, target: Path) -> Callable[[], None]:
    import torch

    return lambda: torch.save(buffer, _file(target))


def _zarr(buffer: Any, target: Path) -> Callable[[], None]:
    import zarr

    def save() -> None:
        group = zarr.open_group(str(target), mode="w")
        for name in ("observations", "next_observations", "actions", "rewards", "dones"):
            array = getattr(buffer, name)
            chunks = (max(1, min(len(array), 2**22 // max(array[0].nbytes, 1))), *array.shape[1:])
            group.create_array(name, data=array, chunks=chunks, compressors=None)

    return save


def _rlmem(buffer: Any, target: Path) -> Callable[[], None]:
    from rlmem.store import ArrayPart, Store

    store, step = Store.open(str(target), create=True), 0

    def save() -> None:
        nonlocal step
        names = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")
        store.save({name: ArrayPart(array=getattr(buffer, name), mutable=True) for name in names}, step=step)
        step += 1

    return save


WAYS: dict[str, Callable[[Any, Path], Callable[[], None]]] = {
    "rlmem": _rlmem,
    "sb3 pickle": _sb3,
    "pickle + gzip": _gzip,
    "torch.save": _torch,
    "zarr": _zarr,
}


if __name__ == "__main__":
    main()
