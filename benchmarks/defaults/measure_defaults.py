"""Measure the process-memory figures that the planner assumes when nobody measured them.

    python benchmarks/defaults/measure_defaults.py [--repeats 3] [--only PREFIX ...] [--extras DIR]

Writes benchmarks/results/defaults.json. Each scenario of scenarios.py runs in a fresh child process, three
times, one child at a time; a figure is the median with the lowest and highest.

Machine of the committed result: 2 cores of an AMD EPYC, 24 GiB, Linux 6.18, huge pages on madvise,
CPU only. Versions: Python 3.11.7, torch 2.13.0+cpu, numpy 2.4.6, gymnasium 1.4.0, stable-baselines3 and
sb3-contrib 2.9.2, ale-py 0.12.1.

Bias, and which way it pulls:
- No CUDA build of torch: importing one takes more, and so does its context. Too low for a GPU run.
- Two cores: thread pools (OpenMP, oneDNN) are small; many cores bring more arenas and scratch. Too low there.
- A bare environment: packages that SB3 imports when it finds them (OpenCV, TensorBoard, Matplotlib, pandas,
  tqdm) are absent, except in the `extras.` figures, which need `--extras DIR`, a folder filled by
  `pip install --target DIR opencv-python tensorboard matplotlib tqdm pandas pygame pillow`, numpy removed.
- PSS divides a shared page by its sharers anywhere on the machine; `strangers.count` says how many other
  processes mapped torch at that moment (0 is clean). The parent maps only the interpreter.
- File-backed pages come in by read-around, so they depend on the page cache, by a few MiB.
- VmHWM is kept by per-CPU counters and may trail RSS by some hundred KiB.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from statistics import median

from scenarios import SCENARIOS

HERE = Path(__file__).resolve().parent
RESULT = HERE.parent / "results" / "defaults.json"
PACKAGES = ("torch", "numpy", "gymnasium", "stable_baselines3", "sb3_contrib", "ale_py")
WITH_EXTRAS = (
    "main.stages",
    "main.ppo_mlp",
    "main.ppo_cnn",
    "workers.forkserver.cartpole",
    "workers.spawn.cartpole",
    "env.breakout_atari_wrapper.8",
)
NEEDS_EXTRAS = ("env.breakout_atari_wrapper.8",)  # OpenCV scales its frames
METERS = {
    "rss_bytes": "Rss of smaps_rollup",
    "rss_anon_bytes": "RssAnon of status",
    "rss_file_bytes": "RssFile of status",
    "hwm_bytes": "VmHWM of status since the process began",
    "pss_bytes": "Pss of smaps_rollup",
    "pss_anon_bytes": "Pss_Anon of smaps_rollup",
    "uss_bytes": "Private_Clean + Private_Dirty of smaps_rollup",
    "virtual_bytes": "VmSize of status",
    "extra_peak_bytes": "VmHWM less Rss before; heap trimmed and VmHWM reset through clear_refs just before",
    "extra_kept_bytes": "Rss after less Rss before, result still held",
    "floor_rss_bytes": "Rss less known tensors and buffers, when those pass 1 MiB together",
    "floor_hwm_bytes": "VmHWM less known tensors and buffers, when those pass 1 MiB together",
    "marginal_group_pss_bytes": "least-squares slope over n = 1, 2, 4 of the PSS of main + helpers + workers",
    "fixed_group_pss_bytes": "intercept of that line",
    "marginal_uss_bytes": "mean private bytes of a worker at n = 4",
    "main_pss_change_bytes": "PSS of the main process at n = 4 less the same with no worker",
}


def run_child(name: str, extras: Path | None) -> dict[str, int]:
    """One scenario in one fresh process."""
    with tempfile.TemporaryDirectory(dir=HERE) as scratch:
        environment = os.environ | {"RLMEM_SCRATCH": scratch, "PYTHONWARNINGS": "ignore"}
        environment |= {"PYTHONPATH": str(extras)} if extras else {}
        command = [sys.executable, str(HERE / "scenarios.py"), name]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{name} must exit 0, but got {done.returncode}:\n{done.stderr[-2000:]}")
        return json.loads((Path(scratch) / "figures.json").read_text())


def with_fit(figures: dict[str, int]) -> dict[str, int]:
    """Add what one more worker costs the whole family of processes."""
    if "n4.group.pss_bytes" not in figures:
        return figures
    slope, intercept = line([(n, figures[f"n{n}.group.pss_bytes"]) for n in (1, 2, 4)])
    return figures | {
        "fit.marginal_group_pss_bytes": round(slope),
        "fit.fixed_group_pss_bytes": round(intercept),
        "fit.marginal_uss_bytes": figures["n4.worker.uss_bytes"],
        "fit.main_pss_change_bytes": figures["n4.main.pss_bytes"] - figures["n0.main.pss_bytes"],
    }


def line(points: list[tuple[int, int]]) -> tuple[float, float]:
    """Slope and intercept by least squares."""
    mean_x, mean_y = (sum(axis) / len(points) for axis in zip(*points, strict=True))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return slope, mean_y - slope * mean_x


def summary(repeats: list[dict[str, int]]) -> dict[str, dict[str, int]]:
    """Median, lowest and highest of each figure."""
    columns = {key: [one[key] for one in repeats] for key in repeats[0]}
    return {k: {"median": int(median(v)), "min": min(v), "max": max(v)} for k, v in columns.items()}


def measure(name: str, repeats: int, extras: Path | None = None) -> dict[str, dict[str, int]]:
    print(name, "with extras" if extras else "", flush=True)
    return summary([with_fit(run_child(name, extras)) for _ in range(repeats)])


def measure_all(only: tuple[str, ...], repeats: int, extras: Path | None) -> dict:
    plain = [name for name in SCENARIOS if name.startswith(only) and name not in NEEDS_EXTRAS]
    figures = {name: measure(name, repeats) for name in plain}
    for name in WITH_EXTRAS if extras else ():
        if name.startswith(only):
            figures[f"extras.{name}"] = measure(name, repeats, extras)
    return figures


def kept_figures(only: list[str]) -> dict:
    """The figures of the last result, when only a part is measured again."""
    return {} if only == [""] else json.loads(RESULT.read_text())["figures"]


def machine() -> dict:
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    huge = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text().strip()
    return {"cores": os.cpu_count(), "memory_bytes": pages, "kernel": platform.release(), "huge_pages": huge}


def versions(extras: Path | None) -> dict:
    found = {"python": platform.python_version()} | {name: metadata.version(name) for name in PACKAGES}
    installed = metadata.distributions(path=[str(extras)]) if extras else ()
    return found | {"extras": dict(sorted((one.name, one.version) for one in installed))}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the planner's assumed process figures.")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[""], help="measure again only what begins so")
    parser.add_argument("--extras", type=Path, help="folder with the packages that SB3 imports when it finds them")
    options = parser.parse_args()
    figures = kept_figures(options.only) | measure_all(tuple(options.only), options.repeats, options.extras)
    result = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
        "versions": versions(options.extras),
        "repeats": options.repeats,
        "metered_by": METERS,
        "figures": figures,
    }
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
