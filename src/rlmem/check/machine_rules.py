"""Rules about processes and threads against the cores of the machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from rlmem.check.model import INFO, WARNING, Finding, FrameworkRule, PlanRule
from rlmem.check.storage import component_bytes
from rlmem.check.wording import count, percent
from rlmem.plan import Plan, make_plan
from rlmem.run.model import FrameworkRun, Run
from rlmem.units import format_bytes

_BUSY: Final = 2
"""Processes or threads a core beyond which they wait for each other."""

_WORKER_PATHS: Final = ("process/workers", "process/eval_workers")


class TooManyWorkers(PlanRule):
    code = "RLM030"
    title = "more workers than the machine can feed"
    severity = WARNING

    def check(self, plan: Plan) -> Iterator[Finding]:
        workers, cores = worker_count(plan.run), plan.machine.cores
        if workers > _BUSY * cores:
            yield self.finding(
                f"{count(workers, 'worker process shares', 'worker processes share')} {count(cores, 'core')}: "
                f"{workers / cores:.1f} a core, so most of them wait while all of them take memory",
                f"at most {_BUSY * cores:,} workers here; step several environments in each",
                size=_worker_bytes(plan),
            )
        size, limit = _worker_bytes(plan), plan.ram_limit_bytes
        if 2 * size > limit:
            yield self.finding(
                f"{count(workers, 'worker process takes', 'worker processes take')} {format_bytes(size)}, "
                f"{percent(size, limit)} of the {format_bytes(limit)} of RAM there are",
                "fewer workers with several environments each; start_method fork shares the parent's pages where CUDA "
                "and threads allow it",
                size=size,
            )


class IdleCores(FrameworkRule):
    code = "RLM031"
    title = "fewer environments than the machine has room for"
    severity = INFO
    families = ("on-policy", "off-policy")
    stock_only = True

    def check_run(self, plan: Plan, run: FrameworkRun) -> Iterator[Finding]:
        cores = plan.machine.cores
        if run.env.workers != "subprocess" or 2 * run.n_envs >= cores or run.training.train_freq_unit == "episode":
            return
        more = make_plan(replace(run, env=replace(run.env, n_envs=cores)), plan.machine)
        if not more.fits.ram or more.fits.vram is False:
            return
        added = more.peak.ram_bytes - plan.peak.ram_bytes
        yield self.finding(
            f"{count(run.n_envs, 'worker')} on {count(cores, 'core')}: with {cores:,} the peak is "
            f"{format_bytes(more.peak.ram_bytes)} of RAM, {format_bytes(added)} more, which still fits",
            _how_to_widen(run, cores),
        )


class TooManyThreads(PlanRule):
    code = "RLM036"
    title = "more threads than cores"
    severity = WARNING

    def check(self, plan: Plan) -> Iterator[Finding]:
        threads, cores = plan.run.processes.threads, plan.machine.cores
        processes = 1 + worker_count(plan.run)
        if threads is None or threads * processes <= _BUSY * cores:
            return
        yield self.finding(
            f"{count(threads, 'thread')} × {count(processes, 'process', 'processes')} = {threads * processes:,} "
            f"threads on {count(cores, 'core')}: they wait for each other, and glibc may keep freed memory for each",
            f"{count(max(cores // processes, 1), 'thread')} a process: torch.set_num_threads, OMP_NUM_THREADS; "
            "MALLOC_ARENA_MAX=2 bounds the arenas. The stacks are reserved, hardly resident",
        )


class IdleGpu(FrameworkRule):
    code = "RLM037"
    title = "a small MlpPolicy on a GPU"
    severity = INFO
    families = ("on-policy",)

    def check_run(self, plan: Plan, run: FrameworkRun) -> Iterator[Finding]:
        small = run.policy.class_name == "MlpPolicy" and plan.parameters < 1_000_000
        if run.algorithm not in ("PPO", "A2C") or not run.device.startswith("cuda") or not small:
            return
        on_cpu = make_plan(replace(run, device="cpu"), plan.machine)
        host = component_bytes(plan, "process/main") - component_bytes(on_cpu, "process/main")
        context = component_bytes(plan, "cuda/context")
        yield self.finding(
            f"a CUDA context takes {format_bytes(context)} of VRAM and {format_bytes(host)} more of RAM for a policy "
            f"of {plan.parameters:,} parameters ({format_bytes(4 * plan.parameters)})",
            f"device cpu: {run.algorithm} with an MlpPolicy is usually as fast or faster there, as Stable-Baselines3 "
            "warns itself",
            size=context + host,
        )


class EvaluationDoublesWorkers(FrameworkRule):
    code = "RLM038"
    title = "evaluation doubles the worker processes"
    severity = WARNING

    def check_run(self, plan: Plan, run: FrameworkRun) -> Iterator[Finding]:
        evaluation = run.evaluation
        if evaluation is None or {evaluation.workers, run.env.workers} != {"subprocess"}:
            return
        if run.n_envs < 2 or evaluation.n_envs < run.n_envs:
            return
        size = component_bytes(plan, "process/eval_workers")
        yield self.finding(
            f"{evaluation.n_envs:,} evaluation workers stand beside {run.n_envs:,} training workers through the whole "
            f"run, idle but for the evaluations: {format_bytes(size)}",
            f"evaluate {count(evaluation.n_eval_episodes, 'episode')} with one environment in the main process",
            size=size,
        )


def worker_count(run: Run) -> int:
    """Return the worker processes of a run, the evaluation's included."""
    if not isinstance(run, FrameworkRun):
        return run.processes.workers
    evaluation = run.evaluation
    training = run.n_envs if run.env.workers == "subprocess" else 0
    return training + (evaluation.n_envs if evaluation and evaluation.workers == "subprocess" else 0)


def _worker_bytes(plan: Plan) -> int:
    return sum(component_bytes(plan, path) for path in _WORKER_PATHS)


def _how_to_widen(run: FrameworkRun, cores: int) -> str:
    if run.spec.on_policy:
        n_steps = max(run.training.n_steps * run.n_envs // cores, 1)
        return f"n_envs {cores:,} with n_steps {n_steps:,} keeps the rollout as large as it is and collects it faster"
    return f"n_envs {cores:,} with gradient_steps -1, one update for each timestep, collects faster"


RULES: Final = (TooManyWorkers(), IdleCores(), TooManyThreads(), IdleGpu(), EvaluationDoublesWorkers())
