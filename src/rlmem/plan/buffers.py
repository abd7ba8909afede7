"""The arrays of the stock buffers, as the framework allocates them.

Tested against every array found in the live buffer objects.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlmem.plan.model import EXACT
from rlmem.plan.versions import rollouts_are_float32
from rlmem.run.algorithms import GOAL_REPLAY
from rlmem.run.arrays import ArraySpec
from rlmem.run.model import FrameworkRun
from rlmem.run.spaces import (
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Space,
    action_dim,
    leaves,
    sample_spec,
)
from rlmem.run.wrappers import stored_observation

_EMPTY_DICT_BYTES = 64
"""What CPython takes for ``{}``: a hindsight buffer holds one for each transition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferArray:
    """Arrays of one kind in a buffer: ``rows`` rows of ``row_bytes``, and ``fixed_bytes`` whatever the rows.

    ``largest_bytes`` is the largest single array among them, ``flattened`` whether `RolloutBuffer.get` copies
    them when it merges steps and environments. What is not ``reserved`` is allocated as it fills.
    """

    path: str
    rows: int
    row_bytes: int
    row_formula: str
    largest_row_bytes: int
    flattened: bool = False
    lazy: bool = True
    fixed_bytes: int = 0
    most_bytes: int | None = None
    reserved: bool = True
    basis: str = EXACT

    @property
    def bytes(self) -> int:
        return self.resident_bytes(self.rows)

    def resident_bytes(self, filled: int | None) -> int:
        """Return what is resident once so many rows are written (None: all)."""
        rows = self.rows if filled is None or not self.lazy else min(filled, self.rows)
        size = self.fixed_bytes + rows * self.row_bytes
        return size if self.most_bytes is None else min(size, self.most_bytes)

    @property
    def largest_bytes(self) -> int:
        return self.rows * self.largest_row_bytes


def rollout_arrays(run: FrameworkRun) -> tuple[BufferArray, ...]:
    """Return the arrays of the run's rollout buffer."""
    rows = run.training.n_steps * run.n_envs
    as_float32 = rollouts_are_float32(run)
    action = _action(run)
    arrays = [
        _of_space("buffer/observations", rows, stored_observation(run.env), as_float32=as_float32, flattened=True),
        _of_space("buffer/actions", rows, action, as_float32=as_float32, flattened=True),
        _scalars(rows, "rewards, returns, episode_starts, values, log_probs, advantages", flattened=True),
    ]
    if run.algorithm == "MaskablePPO":
        width = _mask_width(action)
        masks = _plain("buffer/action_masks", rows, ArraySpec(shape=(width,), dtype="float32"), flattened=True)
        arrays.append(replace(masks, lazy=False))  # made by np.ones: resident at once
    if run.algorithm == "RecurrentPPO":
        arrays.append(_lstm_states(run, rows))
    return tuple(arrays)


def replay_arrays(run: FrameworkRun) -> tuple[BufferArray, ...]:
    """Return the arrays of the run's replay buffer."""
    rows = replay_rows(run)
    observation = stored_observation(run.env)
    arrays = [_of_space("buffer/observations", rows, observation)]
    if not run.training.optimize_memory_usage:
        arrays.append(_of_space("buffer/next_observations", rows, observation))
    arrays += [
        _of_space("buffer/actions", rows, _action(run), as_float32=_is_float64(_action(run))),
        _scalars(rows, "rewards, dones, timeouts"),
    ]
    if run.training.replay_buffer_class == GOAL_REPLAY:
        arrays += _goal_arrays(rows)
    return tuple(arrays)


def replay_rows(run: FrameworkRun) -> int:
    """Return how many transitions the buffer holds: each environment has an equal, whole share."""
    size = run.training.buffer_size or 1
    return max(size // run.n_envs, 1) * run.n_envs


def filled_rows(run: FrameworkRun) -> int:
    """Return how many of the buffer's rows the run ever writes; the rest is never resident."""
    rows, total = replay_rows(run), run.training.total_timesteps
    return rows if total is None else min(rows, -(-total // run.n_envs) * run.n_envs)


def flatten_copy_bytes(run: FrameworkRun, arrays: tuple[BufferArray, ...]) -> int:
    """Return the largest copy that merging steps and environments makes.

    Arrays are merged one after the other and each old one is dropped, so only the largest copy counts. One
    environment, or one step, makes a view and no copy.
    """
    if run.n_envs == 1 or run.training.n_steps == 1:
        return 0
    return max((array.largest_bytes for array in arrays if array.flattened), default=0)


def _of_space(path: str, rows: int, space: Space, *, as_float32: bool = False, flattened: bool = False) -> BufferArray:
    specs = [(key, _stored(sample_spec(leaf), as_float32=as_float32)) for key, leaf in leaves(space)]
    if path == "buffer/actions":
        specs = [(key, replace(spec, shape=(spec.elements,))) for key, spec in specs]
    described = " + ".join(f"{key} {spec}" if key else str(spec) for key, spec in specs)
    return BufferArray(
        path=path,
        rows=rows,
        row_bytes=sum(spec.nbytes for _, spec in specs),
        row_formula=f"({described})" if len(specs) > 1 else described,
        largest_row_bytes=max(spec.nbytes for _, spec in specs),
        flattened=flattened,
    )


def _stored(spec: ArraySpec, *, as_float32: bool) -> ArraySpec:
    return replace(spec, dtype="float32") if as_float32 else spec


def _plain(path: str, rows: int, spec: ArraySpec, *, flattened: bool = False) -> BufferArray:
    return BufferArray(
        path=path,
        rows=rows,
        row_bytes=spec.nbytes,
        row_formula=str(spec),
        largest_row_bytes=spec.nbytes,
        flattened=flattened,
    )


def _scalars(rows: int, names: str, *, flattened: bool = False) -> BufferArray:
    count = names.count(",") + 1
    return BufferArray(
        path="buffer/scalars",
        rows=rows,
        row_bytes=4 * count,
        row_formula=f"{count} × 4 B ({names})",
        largest_row_bytes=4,
        flattened=flattened,
    )


def _lstm_states(run: FrameworkRun, rows: int) -> BufferArray:
    layers, hidden = run.policy.n_lstm_layers, run.policy.lstm_hidden_size
    return BufferArray(
        path="buffer/lstm_states",
        rows=rows,
        row_bytes=4 * layers * hidden * 4,
        row_formula=f"4 states × {layers}×{hidden} × 4 B",
        largest_row_bytes=layers * hidden * 4,
        flattened=True,
    )


def _goal_arrays(rows: int) -> list[BufferArray]:
    episodes = BufferArray(
        path="buffer/episodes",
        rows=rows,
        row_bytes=16,
        row_formula="2 × 8 B (ep_start, ep_length)",
        largest_row_bytes=8,
    )
    infos = BufferArray(
        path="buffer/infos",
        rows=rows,
        row_bytes=8 + _EMPTY_DICT_BYTES,
        row_formula=f"(8 B pointer + {_EMPTY_DICT_BYTES} B empty dict)",
        largest_row_bytes=8,
        lazy=False,
    )
    return [episodes, infos]


def _mask_width(action: Space) -> int:
    match action:
        case Discrete(n=n):
            return n
        case MultiDiscrete(nvec=nvec):
            return sum(nvec)
        case MultiBinary():
            return 2 * action_dim(action)
        case _:
            return 0


def _action(run: FrameworkRun) -> Space:
    assert run.env.action is not None  # noqa: S101 - load_run has read it
    return run.env.action


def _is_float64(action: Space) -> bool:
    return any(sample_spec(leaf).dtype == "float64" for _, leaf in leaves(action))
