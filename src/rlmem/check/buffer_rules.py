"""Rules about what buffers hold, hold twice, or never hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rlmem.check.model import ERROR, INFO, WARNING, Finding, FrameworkRule, PlanRule
from rlmem.check.storage import (
    WORTH_TELLING_BYTES,
    component_bytes,
    copies,
    leaf_bytes,
    observation_bytes,
    rows,
    single_frame_bytes,
    stored_leaves,
)
from rlmem.check.wording import count
from rlmem.plan import Plan, make_plan
from rlmem.plan.buffers import filled_rows, replay_rows
from rlmem.plan.generic import with_size
from rlmem.plan.versions import framework_version, rollouts_are_float32
from rlmem.run.algorithms import GOAL_REPLAY, N_STEP_REPLAY
from rlmem.run.arrays import ITEM_BYTES
from rlmem.run.model import FrameworkRun, GenericRun
from rlmem.run.spaces import Box, Dict, Leaf, is_image, sample_spec
from rlmem.units import format_bytes

_BUFFERED: Final = ("on-policy", "off-policy")
_BYTE_RANGES: Final = ((0, 255, "uint8"), (-128, 127, "int8"))


class StackedFrames(FrameworkRule):
    code = "RLM010"
    title = "every frame is stored once for each place in the stack"
    severity = WARNING
    families = _BUFFERED
    stock_only = True

    def check_run(self, plan: Plan, run: FrameworkRun) -> Iterator[Finding]:
        frames = run.env.frame_stack
        stored = observation_bytes(run)
        waste = stored - single_frame_bytes(run)
        if frames == 1 or waste < WORTH_TELLING_BYTES:
            return
        yield self.finding(
            f"a stack of {frames} frames is stored with every step, so each frame stands in the buffer {frames} times: "
            f"{format_bytes(stored)} of observations, of which {format_bytes(waste)} are copies",
            f"{_lean_switch(run)} holds each frame once and learns the same; short of that, fewer steps or "
            "transitions in the buffer, smaller or grey frames, or a shorter stack, each of which changes learning",
            size=waste,
        )


class NextObservationsTwice(FrameworkRule):
    code = "RLM011"
    title = "next observations are stored a second time"
    severity = WARNING
    families = ("off-policy",)

    def check_run(self, plan: Plan, run: FrameworkRun) -> Iterator[Finding]:
        size = component_bytes(plan, "buffer/next_observations")
        if size <= WORTH_TELLING_BYTES:
            return
        yield self.finding(
            f"the replay buffer holds {format_bytes(size)} of next observations, and nearly all of them are the "
            "observations of the following step, which it holds too",
            _sharing_advice(run),
            size=size,
        )


class WideBytes(FrameworkRule):
    code = "RLM012"
    title = "floats hold what may fit in a byte"
    severity = WARNING
    families = _BUFFERED
    stock_only = True

    def check_run(self, plan: Plan, run: FrameworkRun) -> Iterator[Finding]:
        if run.env.normalize or (run.spec.on_policy and rollouts_are_float32(run)):
            return
        for name, leaf in stored_leaves(run):
            if isinstance(leaf, Box) and (narrow := _byte_dtype(leaf)):
                yield from self._of_leaf(run, name, leaf, narrow)

    def _of_leaf(self, run: FrameworkRun, name: str, box: Box, narrow: str) -> Iterator[Finding]:
        wide, stored = ITEM_BYTES[box.dtype], leaf_bytes(run, box)
        waste = stored - stored // wide
        if waste < WORTH_TELLING_BYTES:
            return
        whole_byte = (box.low, box.high, narrow) in _BYTE_RANGES
        yield self.finding(
            f"{name} is {box.dtype} with bounds {box.low:g} to {box.high:g}, {wide} bytes a value; if its values are "
            f"whole numbers, {narrow} holds them exactly in {format_bytes(stored // wide)} instead of "
            f"{format_bytes(stored)}",
            f"if the values are whole numbers (pixels, counts, flags), let the environment return {narrow} and declare "
            "it in the space; the policy still casts each minibatch to float32",
            size=waste,
            severity=WARNING if whole_byte else INFO,
        )


class NeverFilled(PlanRule):
    code = "RLM013"
    title = "the buffer is larger than the run can fill"
    severity = WARNING

    def check(self, plan: Plan) -> Iterator[Finding]:
        run = plan.run
        if isinstance(run, GenericRun):
            yield from self._generic(plan, run)
        elif run.spec.off_policy and filled_rows(run) < replay_rows(run):
            yield self._replay(plan, run)

    def _replay(self, plan: Plan, run: FrameworkRun) -> Finding:
        size = component_bytes(plan, "buffer/never_filled", phase="collect", where="virtual")
        return self.finding(
            f"buffer_size {run.training.buffer_size:,} is above total_timesteps {run.training.total_timesteps:,}: "
            f"{format_bytes(size)} of the buffer are reserved and never written, so they never take RAM, "
            "but a saved replay buffer contains them",
            f"give buffer_size {filled_rows(run):,}: nothing is lost, and plan, files and machine agree",
            size=size,
        )

    def _generic(self, plan: Plan, run: GenericRun) -> Iterator[Finding]:
        growth = run.growth
        if growth is None or growth.total is None:
            return
        full, reached = dict(run.sizes)[growth.size], growth.by * growth.total
        if reached >= full:
            return
        filled = make_plan(with_size(run, growth.size, reached), plan.machine)
        size = plan.peak.ram_bytes - filled.peak.ram_bytes
        yield self.finding(
            f"`{growth.size}` may grow to {full:,} but reaches {reached:,} ({growth.by:,} × "
            f"{count(growth.total, growth.per)}): {format_bytes(size)} of its full size are never used",
            f"give {reached:,} if it is allocated ahead; what grows as it goes (a deque, a list) takes nothing for "
            "room that it does not reach, and a lower limit saves nothing until it is reached",
            size=size,
        )


class SharingConflict(FrameworkRule):
    code = "RLM014"
    title = "optimize_memory_usage is refused here"
    severity = ERROR
    families = ("off-policy",)

    def check_run(self, plan: Plan, run: FrameworkRun) -> Iterator[Finding]:
        if run.training.optimize_memory_usage and (conflict := _sharing_conflict(run)):
            yield self.finding(*conflict)


class FlattenCopy(FrameworkRule):
    code = "RLM015"
    title = "the flatten copy is the peak of the run"
    severity = WARNING
    families = ("on-policy",)

    def check_run(self, plan: Plan, run: FrameworkRun) -> Iterator[Finding]:
        copy = component_bytes(plan, "buffer/flatten_copy")
        if plan.peak.ram_phase != "flatten" or copy < WORTH_TELLING_BYTES:
            return
        without = max(phase.ram_bytes for phase in plan.phases if phase.name != "flatten")
        yield self.finding(
            f"RolloutBuffer.get merges {run.training.n_steps:,} steps and {run.n_envs:,} envs by copying: for that "
            f"moment the largest array exists twice ({format_bytes(copy)}), and the peak is "
            f"{format_bytes(plan.peak.ram_bytes)} instead of {format_bytes(without)}",
            f"{_lean_switch(run)} makes no copy and learns the same; fewer n_steps shrink array and copy alike; "
            "one env needs no copy, its merge is a view",
            size=copy,
        )


class WidenedRollout(FrameworkRule):
    code = "RLM016"
    title = "this Stable-Baselines3 stores narrow observations as float32"
    severity = WARNING
    families = ("on-policy",)
    stock_only = True

    def check_run(self, plan: Plan, run: FrameworkRun) -> Iterator[Finding]:
        waste = sum(_widening(run, leaf) for _, leaf in stored_leaves(run)) if rollouts_are_float32(run) else 0
        if waste < WORTH_TELLING_BYTES:
            return
        version, _ = framework_version(run)
        stored = observation_bytes(run)
        again = "; the flatten copy grows by as much again" if run.n_envs > 1 and run.training.n_steps > 1 else ""
        yield self.finding(
            f"Stable-Baselines3 {version} keeps every rollout observation as float32: {format_bytes(stored)}, of which "
            f"{format_bytes(waste)} only because the space's own dtype is narrower{again}",
            "upgrade to Stable-Baselines3 2.7.1 or later, which stores rollouts at the dtype of the space",
            size=waste,
        )


class NormalisedIntoIntegers(FrameworkRule):
    code = "RLM017"
    title = "normalised observations lose their fractions in an integer buffer"
    severity = WARNING
    families = ("on-policy",)

    def check_run(self, plan: Plan, run: FrameworkRun) -> Iterator[Finding]:
        if not run.env.normalize or rollouts_are_float32(run):
            return
        for name, leaf in stored_leaves(run):
            if isinstance(leaf, Box) and "int" in leaf.dtype and not is_image(leaf):
                yield self._of_leaf(name, leaf)

    def _of_leaf(self, name: str, box: Box) -> Finding:
        below = "and negative ones wrap around" if box.dtype.startswith("u") else "and small ones become 0"
        return self.finding(
            f"VecNormalize makes floats around 0 of {name}, but leaves its space {box.dtype}, and the rollout buffer "
            f"stores at the dtype of the space: normalised values lose their fractions {below}, so the updates see "
            "other observations than the policy acted on",
            "declare the observation as float32 in the environment, or leave it out of VecNormalize (norm_obs=False, "
            "norm_obs_keys)",
        )


def _byte_dtype(box: Box) -> str | None:
    """Return the one-byte dtype that holds every whole number within the bounds of a float box."""
    if "float" not in box.dtype or box.low is None or box.high is None:
        return None
    if not (float(box.low).is_integer() and float(box.high).is_integer()):
        return None
    return next((name for low, high, name in _BYTE_RANGES if low <= box.low and box.high <= high), None)


def _widening(run: FrameworkRun, leaf: Leaf) -> int:
    spec = sample_spec(leaf)
    return rows(run) * spec.elements * max(ITEM_BYTES["float32"] - ITEM_BYTES[spec.dtype], 0)


def _replay_class(run: FrameworkRun) -> str:
    """Return the buffer class as the framework picks it."""
    if run.training.replay_buffer_class is not None:
        return run.training.replay_buffer_class
    if isinstance(run.env.observation, Dict):
        return "DictReplayBuffer"
    return N_STEP_REPLAY if run.training.n_steps > 1 else "ReplayBuffer"


def _lean_switch(run: FrameworkRun) -> str:
    """Return what to write to have this run's buffer lean."""
    if run.algorithm == "RecurrentPPO":
        return "rlmem.sb3.use_lean_rollout(model)"
    if run.spec.on_policy:
        name = "LeanMaskableRolloutBuffer" if run.algorithm == "MaskablePPO" else "LeanRolloutBuffer"
        return f"rollout_buffer_class=rlmem.sb3.{name}"
    special = {GOAL_REPLAY: "LeanHerReplayBuffer", "NStepReplayBuffer": "LeanNStepReplayBuffer"}
    return f"replay_buffer_class=rlmem.sb3.{special.get(_replay_class(run), 'LeanReplayBuffer')}"


def _sharing_advice(run: FrameworkRun) -> str:
    name = _replay_class(run)
    if name != "ReplayBuffer":
        half = rows(run) // copies(run)
        return (
            f"{_lean_switch(run)} stores each observation once; {name} itself has no optimize_memory_usage, and a "
            f"buffer_size of {half:,} would take half"
        )
    return (
        f"{_lean_switch(run)} stores them once and loses nothing; optimize_memory_usage=True with "
        "replay_buffer_kwargs={'handle_timeout_termination': False} stores them once too, but "
        "then time limits count as real ends and the true last observation of an episode is lost"
    )


def _sharing_conflict(run: FrameworkRun) -> tuple[str, str] | None:
    """Return what the framework raises, in the order in which it looks, and what to change."""
    name = _replay_class(run)
    if name in (GOAL_REPLAY, "DictReplayBuffer"):
        return (
            f"{name} does not take optimize_memory_usage=True: building the model raises AssertionError",
            "leave optimize_memory_usage out; Dict observations are stored with their next observations",
        )
    if run.training.handle_timeout_termination:
        error = "optimize_memory_usage=True with handle_timeout_termination=True: building the model raises ValueError"
        if name == N_STEP_REPLAY:
            return (
                error,
                f"leave optimize_memory_usage out: {N_STEP_REPLAY} does not take it without time limits either",
            )
        return (
            error,
            "give replay_buffer_kwargs: {handle_timeout_termination: false}, or leave optimize_memory_usage out",
        )
    if name == N_STEP_REPLAY:
        return (
            f"{N_STEP_REPLAY} does not take optimize_memory_usage=True: building the model raises NotImplementedError",
            "leave optimize_memory_usage out, or use n_steps 1",
        )
    return None


RULES: Final = (
    StackedFrames(),
    NextObservationsTwice(),
    WideBytes(),
    NeverFilled(),
    SharingConflict(),
    FlattenCopy(),
    WidenedRollout(),
    NormalisedIntoIntegers(),
)
