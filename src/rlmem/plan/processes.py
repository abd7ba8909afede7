"""What processes take besides arrays and networks: the main process, its workers, its threads.

The figures are defaults, shown as `assumed`: medians that `benchmarks/defaults/measure_defaults.py` metered
once, on the machine and versions that `benchmarks/results/defaults.json` states.
"""

from __future__ import annotations

from typing import Final

from rlmem.plan.model import ASSUMED, EXACT, Component
from rlmem.run.model import Env, Evaluation, FrameworkRun, GenericRun, Processes
from rlmem.units import format_bytes

MIB: Final = 2**20

FLOOR_BYTES: Final = 330 * MIB
"""Interpreter, torch, Stable-Baselines3, gymnasium, and what the first update loads lazily."""

CUDA_FLOOR_BYTES: Final = 1100 * MIB
"""The host side of a process with a CUDA context: driver and library code mapped and touched."""

GENERIC_FLOOR_BYTES: Final = 300 * MIB
"""Interpreter, NumPy and torch."""

WORKER_BYTES: Final = {"fork": 30 * MIB, "forkserver": 180 * MIB, "spawn": 180 * MIB}
"""One environment worker by start method, as its proportional share (PSS)."""

IN_PROCESS_ENV_BYTES: Final = 1 * MIB
"""A small environment in the main process; emulators and simulators take more."""

RESIDENT_STACK_BYTES: Final = 16 * 1024
"""What an idle thread's stack has resident, whatever it reserves."""


def floor(processes: Processes, *, device: str, framework: bool) -> Component:
    """Return the main process without its arrays and networks."""
    if processes.floor_bytes is not None:
        return _ram("process/main", processes.floor_bytes, "given in the run file as processes.floor")
    size = FLOOR_BYTES if framework else GENERIC_FLOOR_BYTES
    what = "interpreter, torch, framework" if framework else "interpreter, NumPy, torch"
    if device.startswith("cuda"):
        return _ram("process/main", size + CUDA_FLOOR_BYTES, f"{what}, CUDA libraries: default, not metered here")
    return _ram("process/main", size, f"{what}: default, not metered here")


def environments(run: FrameworkRun) -> tuple[Component, ...]:
    """Return the environments, in worker processes or in the main one, and the evaluation's beside them."""
    parts = [_envs("process/workers", "process/environments", run.env.n_envs, run.env.workers, run)]
    if run.evaluation is not None:
        evaluation: Evaluation = run.evaluation
        parts.append(
            _envs("process/eval_workers", "process/eval_environments", evaluation.n_envs, evaluation.workers, run)
        )
    return tuple(parts)


def _envs(worker_path: str, local_path: str, count: int, kind: str, run: FrameworkRun) -> Component:
    own = run.processes.env_bytes
    if kind == "in-process":
        each = IN_PROCESS_ENV_BYTES if own is None else own
        source = "default for a small environment" if own is None else "given as processes.env"
        return _ram(local_path, count * each, f"{count} envs × {format_bytes(each)} ({source})")
    method = start_method(run.env)
    each, source = _worker(run.processes, method)
    each += own or 0
    return _ram(worker_path, count * each, f"{count} workers × {format_bytes(each)} ({source})")


def start_method(env: Env) -> str:
    """Return how SubprocVecEnv starts its workers: forkserver unless told otherwise."""
    return env.start_method or "forkserver"


def _worker(processes: Processes, method: str) -> tuple[int, str]:
    if processes.worker_bytes is not None:
        return processes.worker_bytes, "given as processes.worker"
    return WORKER_BYTES[method], f"default for {method}"


def generic_workers(run: GenericRun) -> tuple[Component, ...]:
    processes = run.processes
    if not processes.workers:
        return ()
    each, source = _worker(processes, processes.start_method or "fork")
    total = processes.workers * each
    return (_ram("process/workers", total, f"{processes.workers} workers × {format_bytes(each)} ({source})"),)


def thread_stacks(processes: Processes) -> tuple[Component, ...]:
    """Return thread stacks twice over: what is reserved, which is virtual, and what is resident, which is little."""
    if processes.threads is None:
        return ()
    count, stack = processes.threads, processes.thread_stack_bytes
    return (
        Component(
            path="process/thread_stacks_reserved",
            where="virtual",
            bytes=count * stack,
            formula=f"{count} threads × {format_bytes(stack)} reserved, not resident",
            basis=EXACT,
        ),
        _ram(
            "process/thread_stacks",
            count * RESIDENT_STACK_BYTES,
            f"{count} threads × {format_bytes(RESIDENT_STACK_BYTES)} resident",
        ),
    )


def _ram(path: str, size: int, formula: str) -> Component:
    return Component(path=path, where="ram", bytes=size, formula=formula, basis=ASSUMED)
