"""The real machine, in real cgroups where we may make them; a machine as told; the command."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import rlmem
from rlmem.commands import machine as command
from rlmem.machine import Gpu, Machine, as_dict, budget_machine, cores, read_machine
from rlmem.machine.cgroup_paths import find_groups
from rlmem.machine.ram import parse_meminfo, read_ram

MIB = 2**20
GIB = 2**30
H200 = Gpu(index=0, name="NVIDIA H200", vram_total_bytes=140 * GIB, vram_free_bytes=139 * GIB, driver="570")
BASE = Machine(
    ram_total_bytes=64 * GIB,
    ram_available_bytes=60 * GIB,
    ram_limit_bytes=32 * GIB,
    ram_limit_source="cgroup v2 /sys/fs/cgroup/job/memory.max",
    cgroup_usage_bytes=GIB,
    swap_total_bytes=8 * GIB,
    swap_free_bytes=7 * GIB,
    cores=4,
    cores_total=16,
    gpus=(H200,),
)


def test_real_machine_agrees_with_psutil() -> None:
    machine = read_machine()
    assert machine.ram_total_bytes == psutil.virtual_memory().total
    assert machine.ram_available_bytes == pytest.approx(psutil.virtual_memory().available, rel=0.05)
    assert 0 < machine.ram_limit_bytes <= machine.ram_total_bytes
    assert 1 <= machine.cores <= machine.cores_total == os.cpu_count()


def test_without_proc_psutil_answers(tmp_path: Path) -> None:
    machine = read_machine(tmp_path / "none")
    assert machine.ram_limit_bytes == machine.ram_total_bytes == psutil.virtual_memory().total
    assert machine.ram_limit_source == "physical RAM"
    assert machine.cgroup_usage_bytes is None


def test_a_cgroup_limit_above_physical_ram_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "meminfo").write_text("MemTotal: 1024 kB\n")
    (tmp_path / "self/cgroup").write_text("0::/\n")
    (tmp_path / "self/mountinfo").write_text(f"1 2 0:3 / {tmp_path} rw - cgroup2 none rw\n")
    (tmp_path / "memory.max").write_text(f"{2 * 2**20}\n")
    machine = read_machine(tmp_path)
    assert (machine.ram_limit_bytes, machine.ram_limit_source) == (2**20, "physical RAM")


def test_meminfo_of_an_old_kernel_leaves_available_unknown() -> None:
    ram = parse_meminfo("MemTotal:  2048 kB\nSwapTotal: 4 kB\nSwapFree: 1 kB\nHugePages_Total: 0\n")
    assert ram is not None
    assert (ram.total_bytes, ram.available_bytes) == (2 * 2**20, None)
    assert (ram.swap_total_bytes, ram.swap_free_bytes) == (4096, 1024)


def test_meminfo_without_a_total_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("nonsense\n")
    assert read_ram(tmp_path).total_bytes == psutil.virtual_memory().total


@pytest.mark.parametrize(("quota", "expected"), [(None, 8), (0.5, 1), (1.5, 2), (3.0, 3), (99.0, 8)])
def test_cores_heed_affinity_and_quota(monkeypatch: pytest.MonkeyPatch, quota: float | None, expected: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(cores, "read_cpu_quota", lambda _: quota)
    assert cores.read_cores() == expected


def test_a_budget_of_ram_keeps_the_gpus() -> None:
    machine = budget_machine(BASE, ram_bytes=16 * GIB, vram_bytes=None)
    assert machine.ram_total_bytes == machine.ram_limit_bytes == 16 * GIB
    assert machine.ram_limit_source == "given"
    assert machine.ram_available_bytes is None
    assert machine.cgroup_usage_bytes is None
    assert machine.gpus == BASE.gpus


def test_a_budget_of_vram_is_one_given_gpu_and_keeps_the_ram() -> None:
    machine = budget_machine(BASE, ram_bytes=None, vram_bytes=16 * GIB)
    given = Gpu(index=0, name="given", vram_total_bytes=16 * GIB, vram_free_bytes=None, driver=None)
    assert machine == dataclasses.replace(BASE, gpus=(given,))


def test_no_budget_is_the_machine_itself() -> None:
    assert budget_machine(BASE, ram_bytes=None, vram_bytes=None) == BASE


def test_as_dict_goes_through_json_unchanged() -> None:
    found = as_dict(BASE)
    assert json.loads(json.dumps(found)) == found
    assert found["gpus"][0]["name"] == "NVIDIA H200"
    assert set(found) == {field.name for field in dataclasses.fields(Machine)}


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


def test_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == 1
    assert found["ram_total_bytes"] == psutil.virtual_memory().total


def test_command_prints_the_verdict_first(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("rlmem.machine.read_machine", lambda: BASE)
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    limit = "cgroup v2 /sys/fs/cgroup/job/memory.max"
    assert lines[0] == f"32.0 GiB of RAM usable (limit: {limit}), 4 cores, 1 GPU (NVIDIA H200)"
    assert any(line.startswith("GPU 0") and "140.0 GiB" in line for line in lines)


def test_verdict_without_and_with_many_gpus() -> None:
    none = dataclasses.replace(BASE, gpus=(), cores=1)
    two = dataclasses.replace(BASE, gpus=(H200, dataclasses.replace(H200, index=1)))
    assert command.verdict(none).endswith("1 core, no GPU")
    assert command.verdict(two).endswith("4 cores, 2 GPUs (NVIDIA H200)")


CHILD = """
import json, os, pathlib, sys
pathlib.Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
from rlmem.machine import as_dict, read_machine
print(json.dumps(as_dict(read_machine())))
"""


def v1_memory_mount() -> Path | None:
    groups = [group for group in find_groups(Path("/proc"), "memory") if group.version == "v1"]
    return groups[-1].directory if groups else None


@pytest.fixture
def real_group() -> Iterator[Path]:
    """A real group limited to 512 MiB, with an unlimited one in it; both are gone afterwards."""
    mount = v1_memory_mount()
    if mount is None or not os.access(mount, os.W_OK):
        pytest.skip("needs a writable cgroup v1 memory hierarchy")
    outer = mount / f"rlmem-test-{uuid.uuid4().hex}"
    try:
        outer.mkdir()
    except OSError as error:
        pytest.skip(f"needs a writable cgroup v1 memory hierarchy: {error}")
    try:
        (outer / "memory.limit_in_bytes").write_text(str(512 * MIB))
        (outer / "inner").mkdir()
        yield outer
    finally:
        for group in (outer / "inner", outer):
            if group.exists():
                group.rmdir()


@pytest.mark.parametrize("below", ["", "inner"])
def test_real_child_sees_the_limit(real_group: Path, below: str) -> None:
    source = str(Path(rlmem.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(real_group / below)],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    machine = json.loads(done.stdout)
    assert machine["ram_limit_bytes"] == 512 * MIB
    assert machine["ram_limit_source"] == f"cgroup v1 {real_group}/memory.limit_in_bytes"
    assert 0 < machine["cgroup_usage_bytes"] < 512 * MIB
