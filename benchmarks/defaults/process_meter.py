"""Read a process's memory from Linux's /proc; imports nothing outside the standard library's smallest part.

`status` is what `top` shows; `smaps_rollup` adds the proportional share (PSS: a page shared by k processes
counts 1/k) and the private part (USS). All values are bytes.
"""

import os

Figures = dict[str, int]


def _kib_fields(path: str) -> Figures:
    """Every `Name: 12 kB` line of a /proc file, in bytes."""
    with open(path) as file:  # noqa: PTH123 - pathlib would add its own import to the bare interpreter
        rows = [line.split() for line in file]
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) == 3 and row[2] == "kB"}


def read(pid: int | str = "self") -> Figures:
    """Resident, peak, proportional and private bytes of one process now."""
    status, rollup = _kib_fields(f"/proc/{pid}/status"), _kib_fields(f"/proc/{pid}/smaps_rollup")
    return {
        "rss_bytes": rollup["Rss"],
        "rss_anon_bytes": status["RssAnon"],
        "rss_file_bytes": status["RssFile"],
        "hwm_bytes": status["VmHWM"],
        "pss_bytes": rollup["Pss"],
        "pss_anon_bytes": rollup["Pss_Anon"],
        "uss_bytes": rollup["Private_Clean"] + rollup["Private_Dirty"],
        "virtual_bytes": status["VmSize"],
    }


def reset_peak() -> None:
    """Give the free heap back, then set VmHWM to the present VmRSS (proc(5), clear_refs, value 5).

    Free pages that an earlier step left in the heap would otherwise be used again and hide a peak.
    """
    import ctypes

    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as file:  # noqa: PTH123
        file.write("5")


def extra_peak(action) -> Figures:
    """Run `action`; how far the resident peak rose above the start, and how much was still there after."""
    reset_peak()
    before = read()
    result = action()
    after = read()
    del result
    return {
        "extra_peak_bytes": after["hwm_bytes"] - before["rss_bytes"],
        "extra_kept_bytes": after["rss_bytes"] - before["rss_bytes"],
    }


def children(pid: int) -> list[int]:
    """Direct children of a process, every thread's included."""
    found: list[int] = []
    for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
        with open(f"/proc/{pid}/task/{task}/children") as file:  # noqa: PTH123
            found += [int(word) for word in file.read().split()]
    return found


def strangers_mapping(library: str, family: set[int]) -> int:
    """How many processes outside `family` map a library: each one lowers the family's PSS."""
    count = 0
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and int(name) not in family:
            count += _maps(name, library)
    return count


def _maps(pid: str, library: str) -> bool:
    try:
        with open(f"/proc/{pid}/maps") as file:  # noqa: PTH123
            return library in file.read()
    except OSError:
        return False  # it ended, or is not ours to read
