"""What processes take besides arrays and networks: the main process, its workers, its threads.

The figures are defaults, shown as `assumed`: medians that `benchmarks/defaults/measure_defaults.py` metered
once, on the machine and versions that `benchmarks/results/defaults.json` states.
"""

from __future__ import annotations

from typing import Final

from rlmem.plan.model import ASSUMED, EXACT, MEASURED, Component
from rlmem.plan.parts import Calibration
from rlmem.run.model import Env, FrameworkRun, GenericRun, Processes
from rlmem.units import format_bytes, plural

MIB: Final = 2**20

FLOOR_BYTES: Final = {"Mlp": 320 * MIB, "Cnn": 355 * MIB, "MultiInput": 355 * MIB, "Linear": 245 * MIB}
"""Interpreter, torch, Stable-Baselines3, gymnasium, and what the first update loads lazily, by kind of policy."""

RECURRENT_FLOOR_BYTES: Final = 355 * MIB

CUDA_FLOOR_BYTES: Final = 1100 * MIB
"""The host side of a CUDA process: driver and library code mapped and touched. On one H200 machine such processes had
1.2 to 1.8 GiB in all, without their buffers (`benchmarks/results/cuda_accuracy.json`)."""

GENERIC_FLOOR_BYTES: Final = 310 * MIB
"""Interpreter, NumPy, torch and its first optimizer."""

WORKER_BYTES: Final = {"fork": 7 * MIB, "forkserver": 150 * MIB, "spawn": 151 * MIB}
"""What one more environment worker adds to the summed PSS, by start method: all but fork import torch again."""

HELPER_BYTES: Final = {"fork": 0, "forkserver": 14 * MIB, "spawn": 7 * MIB}
"""The fork server and the resource tracker that multiprocessing starts beside the workers."""

FORKED_PAGES_BYTES: Final = 50 * MIB
"""Old copies of pages that the main process has changed since a fork; the workers share them among themselves. From
one run of the accuracy benchmark."""

IN_PROCESS_ENV_BYTES: Final = 1 * MIB
"""A small environment in the main process: CartPole has 4 KiB, an Atari game 1.3 MiB, emulators far more."""

RESIDENT_STACK_BYTES: Final = 16 * 1024
"""What an idle thread's stack has resident, whatever it reserves."""


def framework_floor(run: FrameworkRun, calibration: Calibration) -> Component:
    """Return the main process of a framework run without its arrays and networks."""
    if calibration.floor_bytes is not None and run.processes.floor_bytes is None:
        return Component(
            path="process/main",
            where="ram",
            bytes=calibration.floor_bytes,
            formula=f"interpreter, torch, framework: {calibration.described}",
            basis=MEASURED,
        )
    kind = run.policy.class_name.removesuffix("Policy").removesuffix("Lstm")
    if run.algorithm == "ARS":
        kind = "Linear"  # no optimizer, and none of the modules that torch imports with the first one
    size = RECURRENT_FLOOR_BYTES if run.algorithm == "RecurrentPPO" else FLOOR_BYTES[kind]
    return _floor(run.processes, run.device, size, "interpreter, torch, framework")


def generic_floor(run: GenericRun) -> Component:
    """Return the main process of any other program that has torch."""
    return _floor(run.processes, run.device, GENERIC_FLOOR_BYTES, "interpreter, NumPy, torch")


def _floor(processes: Processes, device: str, size: int, what: str) -> Component:
    if processes.floor_bytes is not None:
        return _ram("process/main", processes.floor_bytes, "given in the run file as processes.floor")
    if device.startswith("cuda"):
        return _ram("process/main", size + CUDA_FLOOR_BYTES, f"{what}, CUDA libraries: default")
    return _ram("process/main", size, f"{what}: default")


def environments(run: FrameworkRun, calibration: Calibration) -> tuple[Component, ...]:
    """Return the environments, in worker processes or in the main one, and the evaluation's beside them."""
    env, evaluation = run.env, run.evaluation
    parts = [_envs("process/workers", "process/environments", env.n_envs, env.workers, run, calibration)]
    if env.workers == "subprocess" and start_method(env) == "fork":
        words = "pages that the main process changes after the fork, kept by the workers: default"
        parts.append(_ram("process/forked_pages", FORKED_PAGES_BYTES, words))
    if evaluation is not None:
        paths = ("process/eval_workers", "process/eval_environments")
        parts.append(_envs(*paths, evaluation.n_envs, evaluation.workers, run, calibration))
    return tuple(parts)


def _envs(
    worker_path: str, local_path: str, count: int, kind: str, run: FrameworkRun, calibration: Calibration
) -> Component:
    own = run.processes.env_bytes
    if kind == "subprocess" and calibration.worker_bytes is not None and run.processes.worker_bytes is None:
        each, helpers = calibration.worker_bytes, calibration.helper_bytes
        words = f"{plural(count, 'worker')} × {format_bytes(each)} + {format_bytes(helpers)} helpers, metered"
        return Component(path=worker_path, where="ram", bytes=count * each + helpers, formula=words, basis=MEASURED)
    if kind == "in-process":
        each = IN_PROCESS_ENV_BYTES if own is None else own
        source = "default for a small environment" if own is None else "given as processes.env"
        return _ram(local_path, count * each, f"{plural(count, 'env')} × {format_bytes(each)} ({source})")
    method = start_method(run.env)
    each, source = _worker(run.processes, method)
    each += own or 0
    return _workers(worker_path, count, each, source, method)


def _workers(path: str, count: int, each: int, source: str, method: str) -> Component:
    helpers = HELPER_BYTES[method]
    words = f"{plural(count, 'worker')} × {format_bytes(each)} ({source})" + (
        f" + {format_bytes(helpers)} helpers" if helpers else ""
    )
    return _ram(path, count * each + helpers, words)


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
    method = processes.start_method or "fork"
    each, source = _worker(processes, method)
    return (_workers("process/workers", processes.workers, each, source, method),)


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
