"""Fake trees for every layout of cgroups."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlmem.machine.cgroup import read_cpu_quota, read_limit, read_usage
from rlmem.machine.cgroup_paths import find_groups

MIB = 2**20
V1_UNLIMITED = 9223372036854771712
V1_UNLIMITED_64K_PAGES = 9223372036854710272


class Tree:
    """A fake /proc/self and the cgroup mounts it names."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.proc = base / "proc"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "self" / "cgroup").touch()
        (self.proc / "self" / "mountinfo").write_text("22 1 0:20 / /proc rw - proc proc rw\n")

    def member(self, line: str) -> None:
        with (self.proc / "self" / "cgroup").open("a") as file:
            file.write(line + "\n")

    def mount(self, name: str, *, kind: str = "cgroup", options: str = "rw,memory", root: str = "/") -> Path:
        point = self.base / name
        point.mkdir(parents=True, exist_ok=True)
        escaped = str(point).replace(" ", r"\040")
        with (self.proc / "self" / "mountinfo").open("a") as file:
            file.write(f"35 31 0:32 {root} {escaped} rw,relatime shared:9 - {kind} {kind} {options}\n")
        return point


def put(directory: Path, **files: object) -> None:
    """Write files named with ``__`` for a dot."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (directory / name.replace("__", ".")).write_text(f"{value}\n")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def limit_bytes(tree: Tree) -> int | None:
    limit = read_limit(tree.proc)
    return None if limit is None else limit.limit_bytes


def test_v1_limit_names_its_file_and_usage(tree: Tree) -> None:
    tree.member("4:memory:/job")
    group = tree.mount("memory") / "job"
    put(group, memory__limit_in_bytes=512 * MIB, memory__usage_in_bytes=7 * MIB)
    limit = read_limit(tree.proc)
    assert limit is not None
    assert limit.limit_bytes == 512 * MIB
    assert limit.source == f"cgroup v1 {group}/memory.limit_in_bytes"
    assert limit.usage_bytes == read_usage(tree.proc) == 7 * MIB


@pytest.mark.parametrize("value", [V1_UNLIMITED, V1_UNLIMITED_64K_PAGES, -1, 2**63 - 1])
def test_v1_unlimited_is_no_limit(tree: Tree, value: int) -> None:
    tree.member("4:memory:/")
    put(tree.mount("memory"), memory__limit_in_bytes=value)
    assert read_limit(tree.proc) is None


def test_v1_nested_takes_the_tightest_on_the_way_up(tree: Tree) -> None:
    tree.member("4:memory:/a/b/c")
    point = tree.mount("memory")
    put(point, memory__limit_in_bytes=V1_UNLIMITED)
    put(point / "a", memory__limit_in_bytes=300 * MIB, memory__usage_in_bytes=30 * MIB)
    put(point / "a/b", memory__limit_in_bytes=400 * MIB, memory__usage_in_bytes=20 * MIB)
    put(point / "a/b/c", memory__limit_in_bytes=V1_UNLIMITED, memory__usage_in_bytes=10 * MIB)
    put(point / "sibling", memory__limit_in_bytes=1 * MIB)
    limit = read_limit(tree.proc)
    assert limit is not None
    assert (limit.limit_bytes, limit.usage_bytes) == (300 * MIB, 30 * MIB)
    assert read_usage(tree.proc) == 10 * MIB


def test_v1_sees_a_limit_above_the_mount_through_memory_stat(tree: Tree) -> None:
    tree.member("4:memory:/")
    point = tree.mount("memory")
    put(point, memory__limit_in_bytes=V1_UNLIMITED, memory__stat="cache 0\nhierarchical_memory_limit 1048576")
    limit = read_limit(tree.proc)
    assert limit is not None
    assert limit.limit_bytes == MIB
    assert limit.source == f"cgroup v1 {point}/memory.stat hierarchical_memory_limit"


def test_v2_limit_ignores_high(tree: Tree) -> None:
    tree.member("0::/user/job")
    point = tree.mount("unified", kind="cgroup2", options="rw,nsdelegate")
    put(point / "user", memory__max=800 * MIB)
    put(point / "user/job", memory__max="max", memory__high=1 * MIB, memory__current=5 * MIB)
    limit = read_limit(tree.proc)
    assert limit is not None
    assert limit.limit_bytes == 800 * MIB
    assert limit.source == f"cgroup v2 {point}/user/memory.max"
    assert read_usage(tree.proc) == 5 * MIB


def test_v2_max_everywhere_is_no_limit(tree: Tree) -> None:
    tree.member("0::/job")
    put(tree.mount("unified", kind="cgroup2", options="rw") / "job", memory__max="max")
    assert read_limit(tree.proc) is None


def test_v2_limit_of_zero_is_a_limit(tree: Tree) -> None:
    tree.member("0::/job")
    put(tree.mount("unified", kind="cgroup2", options="rw") / "job", memory__max=0)
    assert limit_bytes(tree) == 0


def test_hybrid_with_memory_in_v1(tree: Tree) -> None:
    for line in ("9:name=systemd:/", "4:memory:/job", "0::/scope"):
        tree.member(line)
    put(tree.mount("memory") / "job", memory__limit_in_bytes=256 * MIB, memory__usage_in_bytes=MIB)
    put(tree.mount("unified", kind="cgroup2", options="rw") / "scope", cgroup__procs="1")
    assert limit_bytes(tree) == 256 * MIB
    assert read_usage(tree.proc) == MIB


def test_hybrid_with_memory_in_v2(tree: Tree) -> None:
    for line in ("5:devices:/job", "0::/job"):
        tree.member(line)
    tree.mount("devices", options="rw,devices")
    put(tree.mount("unified", kind="cgroup2", options="rw") / "job", memory__max=128 * MIB)
    assert limit_bytes(tree) == 128 * MIB


def test_container_whose_mount_shows_only_its_part(tree: Tree) -> None:
    tree.member("4:memory:/docker/abc/inner")
    point = tree.mount("memory", root="/docker/abc")
    put(point, memory__limit_in_bytes=100 * MIB)
    put(point / "inner", memory__limit_in_bytes=90 * MIB)
    assert limit_bytes(tree) == 90 * MIB


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/docker/abc", "/"),  # the host's path, in a mount made in the container's namespace
        ("/docker/abc", "/docker/xyz"),
        ("/", "/.."),  # the mount was made outside this process's namespace
        ("/../sibling", "/"),
    ],
)
def test_invisible_group_falls_back_on_the_mount(tree: Tree, path: str, root: str) -> None:
    tree.member(f"0::{path}")
    put(tree.mount("unified", kind="cgroup2", options="rw", root=root), memory__max=100 * MIB)
    put(tree.base / "sibling", memory__max=1 * MIB)
    assert limit_bytes(tree) == 100 * MIB


def test_group_seen_through_two_mounts_counts_both(tree: Tree) -> None:
    tree.member("4:memory:/docker/abc")
    put(tree.mount("memory", root="/docker/abc"), memory__limit_in_bytes=V1_UNLIMITED)
    host = tree.mount("host/memory")
    put(host / "docker", memory__limit_in_bytes=200 * MIB)
    put(host / "docker/abc", memory__limit_in_bytes=V1_UNLIMITED)
    assert limit_bytes(tree) == 200 * MIB


def test_joined_controllers_and_paths_with_blanks_and_colons(tree: Tree) -> None:
    tree.member("4:cpu,memory:/my job:1")
    put(tree.mount("a mount", options="rw,cpu,memory") / "my job:1", memory__limit_in_bytes=50 * MIB)
    assert limit_bytes(tree) == 50 * MIB


def test_no_proc_gives_nothing(tmp_path: Path) -> None:
    assert find_groups(tmp_path / "none", "memory") == ()
    assert read_limit(tmp_path / "none") is None
    assert read_usage(tmp_path / "none") is None
    assert read_cpu_quota(tmp_path / "none") is None


def test_cpu_quota_v1(tree: Tree) -> None:
    tree.member("2:cpu,cpuacct:/a/b")
    point = tree.mount("cpu", options="rw,cpu,cpuacct")
    put(point / "a", cpu__cfs_quota_us=150_000, cpu__cfs_period_us=100_000)
    put(point / "a/b", cpu__cfs_quota_us=-1, cpu__cfs_period_us=100_000)
    assert read_cpu_quota(tree.proc) == 1.5


@pytest.mark.parametrize(("text", "cores"), [("max 100000", None), ("50000 100000", 0.5), ("", None)])
def test_cpu_quota_v2(tree: Tree, text: str, cores: float | None) -> None:
    tree.member("0::/job")
    put(tree.mount("unified", kind="cgroup2", options="rw") / "job", cpu__max=text)
    assert read_cpu_quota(tree.proc) == cores
