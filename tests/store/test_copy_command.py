"""`rlmem store copy` to a bucket and back, with credentials from the environment, as a user has them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from rlmem.commands import main
from rlmem.store import ArrayPart, Store

SECRET = "hunter2hunter2"  # noqa: S105 - what must not be seen again


@pytest.fixture
def bucket(s3_endpoint, monkeypatch, tmp_path, kit) -> str:
    place = kit.s3_place(s3_endpoint, f"copies/{tmp_path.name}")
    for name, value in place.options.items():
        monkeypatch.setenv(f"AWS_{name.upper()}" if name != "endpoint" else "AWS_ENDPOINT_URL", value)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    return place.url


def test_to_a_bucket_and_back(bucket, tmp_path, capsys):
    store = Store.open(tmp_path / "here", create=True)
    array = np.random.default_rng(0).standard_normal(100_000)
    for step in (1, 2):
        array[:10] = step
        store.save({"array": ArrayPart(array=array)}, step=step)
    answers = []
    ways = ((str(tmp_path / "here"), bucket), (str(tmp_path / "here"), bucket), (bucket, str(tmp_path / "back")))
    for source, target in ways:
        assert main(["store", "copy", source, target, "--json"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert [len(answer["snapshots"]) for answer in answers] == [2, 0, 2]
    assert answers[1]["objects_present"] == answers[0]["objects"] == answers[2]["objects"]
    assert main(["store", "verify", bucket]) == 0
    assert SECRET not in capsys.readouterr().out
    assert np.array_equal(Store.open(tmp_path / "back").load(2).array("array"), array)


def test_errors_of_a_bucket_are_without_credentials(bucket, capsys):
    assert main(["store", "ls", bucket.replace("s3://", f"s3://user:{SECRET}@")]) == 2
    said = capsys.readouterr().err
    assert "there is no store here" in said
    assert SECRET not in said
