"""Stores of every format version that there was are read as they were written."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from rlmem.store import Store

SAMPLES = Path(__file__).parents[1] / "data" / "stores"


@pytest.fixture(scope="module")
def made() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(SAMPLES / "make_v1.py")))


@pytest.fixture(params=["as committed", "made anew"])
def store(request: pytest.FixtureRequest, made: SimpleNamespace, tmp_path: Path) -> Store:
    if request.param == "as committed":
        return Store.open(SAMPLES / "v1")
    made.main(str(tmp_path / "v1"))
    return Store.open(tmp_path / "v1")


def test_the_sample_is_sound(store: Store) -> None:
    assert [info.step for info in store.snapshots()] == [80, 130]
    assert store.verify().is_sound


@pytest.mark.parametrize("step", [80, 130])
def test_the_sample_reads_as_it_was_written(store: Store, made: SimpleNamespace, step: int) -> None:
    snapshot = store.load(step=step)
    for name, array in made.arrays(step).items():
        assert np.array_equal(snapshot.array(f"arrays/{name}"), array)
    found = snapshot.tensors("policy")
    for name, tensor in made.tensors(step).items():
        assert np.array_equal(found[name], tensor)
        assert found[name].dtype == tensor.dtype
    assert snapshot.tensor_formats("policy") == {"bits": "BF16"}
    assert snapshot.json("counters") == {"step": step, "name": "ü", "list": [None, True, 0.5]}
    assert snapshot.json("long")[-1] == f"line 1499 of {step}"
    assert snapshot.metadata == {"made by": "make_v1.py"}


@pytest.mark.parametrize("step", [80, 130])
def test_the_columns_of_the_sample(store: Store, made: SimpleNamespace, step: int) -> None:
    for name, options in made.COLUMNS.items():
        column = store.load(step=step).column(f"columns/{name}")
        for now in range(max(step - made.ROWS, 0), step):
            rows, envs = np.full(made.N_ENVS, now % made.ROWS), np.arange(made.N_ENVS)
            assert np.array_equal(column.get(rows, envs), made.observation(name, now)), (name, now)
            if options.get("follows"):
                assert np.array_equal(column.get_next(rows, envs), made.observation(name, now + 1))
        column.put(
            step % made.ROWS, made.observation(name, step), *([made.observation(name, step)] if column.follows else [])
        )
