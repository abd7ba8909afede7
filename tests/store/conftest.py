"""Stores to test on: a folder, memory, and an S3 server on loopback, which is moto's."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlmem.lean import Column
from rlmem.store import ArrayPart, ColumnPart, Contents, Json, Store, Tensors

SECRET = "a-secret-nobody-may-see"  # noqa: S105 - which is the point


@dataclass(frozen=True)
class Place:
    """Where a store may be opened."""

    url: str
    options: dict[str, str] = field(default_factory=dict)

    def open(self, *, create: bool = False) -> Store:
        return Store.open(self.url, create=create, options=self.options or None)


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    pytest.importorskip("moto")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    endpoint = f"http://127.0.0.1:{port}"
    try:
        _wait_for(endpoint, server)
        yield endpoint
    finally:
        server.terminate()
        server.wait(10)


def _wait_for(endpoint: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert server.poll() is None, "the S3 server ended"
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            request = urllib.request.Request(f"{endpoint}/bucket", method="PUT")  # noqa: S310 - loopback
            urllib.request.urlopen(request, timeout=5).close()  # noqa: S310
            return
        time.sleep(0.1)
    raise AssertionError("the S3 server did not answer")


def s3_place(endpoint: str, folder: str) -> Place:
    options = {
        "endpoint": endpoint,
        "access_key_id": "user",
        "secret_access_key": SECRET,
        "region": "us-east-1",
        "allow_http": "true",
    }
    return Place(f"s3://bucket/{folder}", options)


@pytest.fixture(params=["folder", "memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "folder":
        return Place(str(tmp_path / "store"))
    if request.param == "memory":
        return Place(f"memory://{tmp_path.name}-{time.time_ns()}")
    return s3_place(request.getfixturevalue("s3_endpoint"), f"runs/{tmp_path.name}-{time.time_ns()}")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Store]:
    """A store in a folder, in memory where that can be: flushing to a busy disk takes most of a test's time."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as there:
        yield Store.open(Path(there, "store"), create=True)


def frames(steps: int, *, n_envs: int = 2, seed: int = 0) -> np.ndarray:
    """Return frame stacks in which a square moves over a background."""
    random = np.random.default_rng(seed)
    background = random.integers(0, 255, (n_envs, 32, 32), np.uint8)
    shots = np.repeat(background[None], steps + 3, 0)
    for step in range(steps + 3):
        x = (3 * step) % 28
        shots[step, :, x : x + 4, 5:9] = step % 251
    return np.stack([shots[step : step + 4].transpose(1, 0, 2, 3) for step in range(steps)])


def column_of(observations: np.ndarray, *, rows: int | None = None, **options: Any) -> Column:
    """Return a column into which all observations (steps × envs × shape) were put."""
    rows = rows or len(observations)
    column = Column(
        rows=rows, n_envs=observations.shape[1], shape=observations.shape[2:], dtype=observations.dtype, **options
    )
    for step, now in enumerate(observations):
        column.put(step % rows, now, *([now] if options.get("follows") else []))
    return column


def everything(column: Column, rows: int) -> np.ndarray:
    """Return all observations of the first rows."""
    which = np.repeat(np.arange(rows), column.n_envs)
    return np.ascontiguousarray(column.get(which, np.tile(np.arange(column.n_envs), rows)))


@pytest.fixture(scope="session")
def kit() -> SimpleNamespace:
    """What tests make their data with."""
    return SimpleNamespace(
        contents=sample_contents,
        frames=frames,
        column_of=column_of,
        everything=everything,
        s3_place=s3_place,
        place=Place,
        secret=SECRET,
    )


def sample_contents(seed: int = 0, *, steps: int = 300) -> Contents:
    """Return a part of each kind, with objects of each kind."""
    random = np.random.default_rng(seed)
    return {
        "policy": Tensors(
            tensors={
                "weight": random.normal(size=(200, 200)).astype(np.float32),
                "bias": random.normal(size=200).astype(np.float32),
                "step": np.array(seed, np.int64),
            }
        ),
        "buffer/actions": ArrayPart(array=random.normal(size=(1000, 50)).astype(np.float32)),
        "buffer/dones": ArrayPart(array=np.zeros((1000, 200), bool), compress=True),
        "buffer/observations": ColumnPart(column=column_of(frames(steps, seed=seed))),
        "rng": Json(value={"state": [*range(20)], "seed": seed}),
        "long": Json(value=["x" * 1000] * 20),
    }
