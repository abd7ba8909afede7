"""What is to be trained: the Run and its parts, as frozen values.

A ``FrameworkRun`` is described by what users of the framework already write (``n_envs``, ``n_steps``,
``net_arch``). A ``GenericRun`` describes any other program as named arrays, networks and processes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from rlmem.run.algorithms import ALGORITHMS, Algorithm
from rlmem.run.layers import Layer
from rlmem.run.spaces import Space

Setting: TypeAlias = bool | int | float | str | None
"""A setting that does not bear on memory, kept as it was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Env:
    """The environment: its spaces, or how to get them, and what stands between it and the buffer."""

    observation: Space | None = None
    action: Space | None = None
    id: str | None = None
    make: str | None = None
    wrappers: tuple[str, ...] = ()
    n_envs: int = 1
    workers: str = "in-process"
    start_method: str | None = None
    frame_stack: int = 1
    transpose_images: bool | None = None
    normalize: bool = False
    episode_length: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The settings of the algorithm. ``given`` names those that the user wrote; the rest are its defaults."""

    total_timesteps: int | None = None
    n_steps: int = 1
    batch_size: int | None = None
    n_epochs: int = 1
    buffer_size: int | None = None
    learning_starts: int | None = None
    train_freq: int = 1
    train_freq_unit: str = "step"
    gradient_steps: int = 1
    optimize_memory_usage: bool = False
    handle_timeout_termination: bool = True
    replay_buffer_class: str | None = None
    use_sde: bool = False
    n_delta: int = 8
    other: tuple[tuple[str, Setting], ...] = ()
    given: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """How the buffer holds observations: ``stock``, as the framework's own arrays, or ``lean``.

    The rest is a lean buffer's own: compressed or not, the bytes at which it stops, what it then does, and what floats
    are rounded to, which loses something.
    """

    kind: str = "stock"
    compact: bool = False
    memory_limit: int | None = None
    when_full: str = "error"
    lossy: str | None = None

    @property
    def is_lean(self) -> bool:
        return self.kind == "lean"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetArch:
    """The hidden layers after the features extractor; ``value`` is the critic's part."""

    policy: tuple[int, ...]
    value: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The policy: its class, its features extractor, its heads and its optimizer."""

    class_name: str = "MlpPolicy"
    net_arch: NetArch | None = None
    features: tuple[Layer, ...] | str | None = None
    features_dim: int | None = None
    share_features_extractor: bool | None = None
    optimizer: str | None = None
    n_critics: int | None = None
    n_quantiles: int | None = None
    lstm_hidden_size: int = 256
    n_lstm_layers: int = 1
    shared_lstm: bool = False
    enable_critic_lstm: bool = True
    normalize_images: bool = True
    other: tuple[tuple[str, Setting], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """What the run's processes take besides arrays and networks; None stands for rlmem's default."""

    floor_bytes: int | None = None
    worker_bytes: int | None = None
    env_bytes: int | None = None
    workers: int = 0
    start_method: str | None = None
    threads: int | None = None
    thread_stack_bytes: int = 8 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """An evaluation environment beside the training ones. ``eval_freq`` counts calls, as in EvalCallback."""

    n_envs: int = 1
    workers: str = "in-process"
    eval_freq: int | None = None
    n_eval_episodes: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What is saved and how often. ``save_freq`` counts calls, as in CheckpointCallback."""

    save_freq: int | None = None
    save_replay_buffer: bool = False
    save_vecnormalize: bool = False
    keep: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The machine that the run file names; None where it names none."""

    ram_bytes: int | None = None
    vram_bytes: int | None = None
    cores: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkRun:
    """A run of a framework whose memory rlmem has modelled."""

    name: str
    framework: str
    framework_version: str | None = None
    algorithm: str
    env: Env
    training: Training
    policy: Policy
    buffer: Buffer = Buffer()
    device: str = "cpu"
    budget: Budget = Budget()
    processes: Processes = Processes()
    evaluation: Evaluation | None = None
    checkpoint: Checkpoint | None = None

    @property
    def spec(self) -> Algorithm:
        return ALGORITHMS[self.algorithm]

    @property
    def n_envs(self) -> int:
        return self.env.n_envs


Dim: TypeAlias = int | str
"""A size given as a number or by the name that ``sizes`` gives it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedArray:
    """``count`` arrays of one shape, alive in ``phases`` (None: all of them)."""

    path: str
    shape: tuple[Dim, ...]
    dtype: str
    count: tuple[Dim, ...] = ()
    every: tuple[Dim, ...] = ()
    where: str = "ram"
    phases: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedNetwork:
    """``copies`` of a network, given by its layers or by its number of parameters.

    ``rows`` is how many rows are in the graph at once: activations scale with it.
    """

    name: str
    input: tuple[Dim, ...] = ()
    layers: tuple[Layer, ...] = ()
    parameters: int | None = None
    activations_per_row: int | None = None
    optimizer: str | None = "adam"
    targets: int = 0
    copies: tuple[Dim, ...] = ()
    active: tuple[Dim, ...] = ()
    rows: tuple[Dim, ...] = ()
    graph_phases: tuple[str, ...] = ("update",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The size that fills as training goes on: ``by`` more each ``per``."""

    size: str
    by: int
    per: str
    total: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGrowth:
    """Files written at each ``per`` and kept."""

    per: str
    files: int
    file_bytes: int
    total: int | None = None
    keep: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenericRun:
    """A run that no adapter knows, described as arrays, networks and processes."""

    name: str
    framework: str = "generic"
    algorithm: str = "unnamed"
    sizes: tuple[tuple[str, int], ...] = ()
    phases: tuple[str, ...] = ("startup", "collect", "update")
    arrays: tuple[NamedArray, ...] = ()
    networks: tuple[NamedNetwork, ...] = ()
    growth: Growth | None = None
    capacity: str | None = None
    files: FileGrowth | None = None
    notes: tuple[str, ...] = ()
    device: str = "cpu"
    budget: Budget = Budget()
    processes: Processes = field(default_factory=Processes)


Run: TypeAlias = FrameworkRun | GenericRun
