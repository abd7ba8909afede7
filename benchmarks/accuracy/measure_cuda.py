"""The driver's peak of real runs on a GPU: made on a machine with one, compared elsewhere.

Each run is trained for some updates in a process of its own. Truth is what the driver says the device has in use
afterwards, less what it had before the process: the caching allocator never gives back, so the end is the peak.
Run it with Stable-Baselines3, sb3-contrib and Gymnasium on PYTHONPATH; results go to one JSON file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MIB = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("cuda_accuracy.json"))
    parser.add_argument("--seconds", type=float, default=420, help="start no run after this long")
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="leave out the first N runs")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(_train(arguments.one)))
        return
    _all(arguments.out, arguments.seconds, arguments.skip)


def _all(out: Path, seconds: float, skip: int) -> None:
    from cuda_runs import CUDA_RUNS

    started, results = time.monotonic(), {}
    for name in list(CUDA_RUNS)[skip:]:
        if time.monotonic() - started > seconds:
            break
        results[name] = _in_child(name)
        print(name, results[name], flush=True)
        out.write_text(json.dumps(results, indent=1))


def _in_child(name: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": "timeout"}
    if done.returncode:
        return {"failed": done.stderr.strip()[-600:]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def _used() -> int:
    """Return what the driver says is in use on the device, without a context of our own."""
    text = subprocess.run(
        ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],  # noqa: S607 - wherever it is
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return int(text.split()[0]) * MIB


def _train(name: str) -> dict[str, Any]:
    from cuda_runs import CUDA_RUNS

    before = _used()
    import torch

    from rlmem.observe import high_water_bytes
    from rlmem.plan.schedule import timesteps, without_repetition
    from rlmem.run import run_from_mapping
    from rlmem.sb3.building import build_model, build_vec_env

    run = run_from_mapping({"name": name, **CUDA_RUNS[name]})
    model = build_model(run, build_vec_env(run.env), **without_repetition(run))
    steps = min(timesteps(run), 3 * max(run.training.n_steps, 1)) if run.spec.on_policy else timesteps(run)
    model.learn(steps, log_interval=None)
    torch.cuda.synchronize()
    import os

    return {
        "driver_bytes": _used() - before,
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "host_high_water_bytes": high_water_bytes(os.getpid()),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
    }


if __name__ == "__main__":
    main()
