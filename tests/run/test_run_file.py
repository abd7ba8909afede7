"""Run files: what is refused and in which words, and that a run written back is the same run."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlmem.errors import InputError, RlmemError, RunFileError
from rlmem.run import FrameworkRun, GenericRun, load_run, read_run, run_from_mapping, write_run
from rlmem.run.algorithms import ALGORITHMS, KNOWN_SETTINGS
from rlmem.run.arrays import ITEM_BYTES
from rlmem.run.layers import ACTIVATIONS

PPO: dict[str, Any] = {
    "framework": "sb3",
    "algorithm": "PPO",
    "env": {"observation": {"shape": [4]}, "action": {"discrete": 2}},
}
DQN = PPO | {"algorithm": "DQN"}
GENERIC: dict[str, Any] = {
    "framework": "generic",
    "sizes": {"agents": 100},
    "arrays": [{"path": "buffer/observations", "shape": ["agents", 7], "dtype": "float32"}],
    "networks": [{"name": "policy", "input": [7], "layers": [{"linear": 3}], "rows": "agents"}],
}


def changed(mapping: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return the mapping with one value changed or added; a number in the path is a place in a list."""
    whole = copy.deepcopy(mapping)
    *parents, last = path.split("/")
    inner: Any = whole
    for name in parents:
        inner = inner[int(name)] if isinstance(inner, list) else inner.setdefault(name, {})
    inner[last] = value
    return whole


REFUSED = [
    # keys that nobody knows, with the nearest one
    (PPO, "trainng", {}, "unknown key `trainng` in the run file; did you mean `training`?"),
    (PPO, "env/n_env", 4, "unknown key `n_env` in `env`; did you mean `n_envs`?"),
    (PPO, "env/observation/dtyp", "uint8", "did you mean `dtype`?"),
    (PPO, "env/action/discret", 3, "unknown key `discret`"),
    (PPO, "training/nsteps", 4, "unknown key `nsteps` in `training`; did you mean `n_steps`?"),
    (PPO, "training/batchsize", 4, "did you mean `batch_size`?"),
    (PPO, "training/zzzzz", 4, "unknown key `zzzzz` in `training`"),
    (DQN, "training/replay_buffer_kwargs/handle_timeouts_termination", 4, "did you mean `handle_timeout_termination`?"),
    (PPO, "policy/netarch", [4], "did you mean `net_arch`?"),
    (PPO, "policy/net_arch", {"pi": [4], "q": [4]}, "unknown key `q`"),
    (PPO, "machine/rma", "1GB", "did you mean `ram`?"),
    (PPO, "processes/flor", "1GB", "did you mean `floor`?"),
    (PPO, "evaluation/eval_frequency", 1, "did you mean `eval_freq`?"),
    (PPO, "checkpoint/save_frequency", 1, "did you mean `save_freq`?"),
    (PPO, "buffer", {"kind": "lean", "compct": True}, "unknown key `compct` in `buffer`; did you mean `compact`?"),
    (PPO, "sizes", {}, "unknown key `sizes`"),
    (GENERIC, "buffer", "lean", "unknown key `buffer`"),
    (GENERIC, "env", {}, "unknown key `env`"),
    (GENERIC, "arrays/0/shap", [], "did you mean `shape`?"),
    (GENERIC, "networks/0/layer", [], "did you mean `layers`?"),
    (GENERIC, "networks/0/layers/0/linear", {"out": 3, "bais": False}, "did you mean `bias`?"),
    # choices
    (PPO, "framework", "sb33", "did you mean `sb3`?"),
    (PPO, "algorithm", "ppo", "must be one of PPO"),
    (PPO, "algorithm", "MaskablePP", "did you mean `MaskablePPO`?"),
    (PPO, "env/workers", "subproces", "did you mean `subprocess`?"),
    (PPO, "env/start_method", "thread", "must be one of fork"),
    (PPO, "env/observation/dtype", "float", "`env.observation.dtype` must be one of"),
    (PPO, "policy/class", "MlpPolicies", "did you mean `MlpPolicy`?"),
    (PPO, "policy/optimizer", "adamm", "did you mean `adam`?"),
    (PPO, "buffer", "leen", "`buffer` must be one of stock, lean, but got 'leen'; did you mean `lean`?"),
    (PPO, "buffer", {"kind": "leen"}, "`buffer.kind` must be one of stock, lean, but got 'leen'"),
    (DQN, "buffer", {"kind": "lean", "when_full": "forgt"}, "did you mean `forget`?"),
    (DQN, "training/replay_buffer_class", "Replay", "must be one of ReplayBuffer"),
    (DQN, "training/train_freq", [1, "steps"], "did you mean `step`?"),
    (GENERIC, "arrays/0/where", "gpu", "must be one of ram, vram, virtual, disk"),
    (GENERIC, "arrays/0/phases", ["colect"], "did you mean `collect`?"),
    (GENERIC, "networks/0/layers", ["rellu"], "unknown layer `rellu`; did you mean `relu`?"),
    (GENERIC, "networks/0/layers", [{"linaer": 3}], "did you mean `linear`?"),
    (GENERIC, "networks/0/layers", ["linear"], "`linear` needs a value"),
    (GENERIC, "arrays/0/shape", ["agent"], "which `sizes` does not give; did you mean `agents`?"),
    (GENERIC, "capacity", "agent", "did you mean `agents`?"),
    # kinds
    (PPO, "env", [1], "`env` must be a mapping, but got a list"),
    (PPO, "env", 3, "`env` must be a mapping, but got 3"),
    (PPO, "training", "fast", "`training` must be a mapping, but got 'fast'"),
    (PPO, "name", [1], "`name` must be text, but got a list"),
    (PPO, "env/n_envs", "four", "`env.n_envs` must be a whole number, but got 'four'"),
    (PPO, "env/n_envs", 2.5, "`env.n_envs` must be a whole number, but got 2.5"),
    (PPO, "env/n_envs", True, "`env.n_envs` must be a whole number, but got True"),
    (PPO, "env/n_envs", [4], "`env.n_envs` must be a whole number, but got a list"),
    (PPO, "env/normalize", 1, "`env.normalize` must be true or false, but got 1"),
    (PPO, "env/observation", 3, "`env.observation` must be a mapping"),
    (PPO, "env/observation/shape", ["a"], "must be a whole number, but got 'a'"),
    (PPO, "env/observation/shape", {"a": 1}, "must be a whole number, but got a mapping"),
    (PPO, "env/observation/low", "a", "must be a number, but got 'a'"),
    (PPO, "training/learning_rate", [1], "must be one value, but got a list"),
    (PPO, "buffer", {"compact": True}, "`buffer` must have `kind`"),
    (PPO, "buffer", {"kind": "lean", "compact": 1}, "`buffer.compact` must be true or false, but got 1"),
    (PPO, "buffer", {"kind": "lean", "memory_limit": "lots"}, "`buffer.memory_limit`: a size must look like 16GB"),
    (PPO, "machine/ram", 1.5, "must be a size such as 16GB, but got 1.5"),
    (PPO, "machine/ram", True, "must be a size such as 16GB"),
    (PPO, "machine/ram", "lots", "a size must look like 16GB"),
    (PPO, "framework_version", "newest", "must look like 2.3.2"),
    (PPO, "device", "gpu", "`device` must be cpu, cuda or cuda:0"),
    (PPO, "device", "cuda:x", "`device` must be cpu, cuda or cuda:0"),
    (PPO, "env/wrappers", ["no colon"], "of the form package.module:name"),
    (PPO, "policy/features", "nets.Cnn", "of the form package.module:name"),
    (GENERIC, "arrays", {"a": 1}, "`arrays` must be a list, but got a mapping"),
    (GENERIC, "arrays", ["a"], "must be a mapping, but got 'a'"),
    (GENERIC, "arrays/0/path", [1], "must be text, but got a list"),
    (GENERIC, "networks/0/name", {"a": 1}, "must be text, but got a mapping"),
    (GENERIC, "phases", [["a"]], "must be text, but got a list"),
    (GENERIC, "notes", [{"a": 1}], "must be text, but got a mapping"),
    # values that cannot be
    (PPO, "env/n_envs", 0, "1 ≤ `env.n_envs` ≤ 1e+06 must hold, but got 0"),
    (PPO, "env/n_envs", -3, "must hold, but got -3"),
    (PPO, "env/n_envs", 10**30, "must hold, but got 10^30 or more"),
    (PPO, "env/n_envs", -(10**30), "must hold, but got -10^30 or more"),
    (PPO, "env/n_envs", 10**5000, "must hold, but got 10^5000 or more"),
    (PPO, "env/n_envs", float("nan"), "must be a whole number, but got nan"),
    (PPO, "env/n_envs", float("inf"), "must be a whole number, but got inf"),
    (PPO, "env/observation/low", float("nan"), "must be a number, but got nan"),
    (PPO, "env/observation", {"shape": [4], "low": 1, "high": 0}, "low ≤ high must hold"),
    (PPO, "env/observation", {"shape": [4], "low": 10**400}, "`env.observation.low`"),
    (PPO, "env/observation/shape", [0], "must hold, but got 0"),
    (PPO, "env/observation/shape", [10**9, 10**9, 10**9], "more elements than any memory could hold"),
    (PPO, "env/observation", {"multi_discrete": []}, "at least one"),
    (PPO, "env/observation", {"dict": {}}, "at least one"),
    (PPO, "env/observation", {"shape": [3], "discrete": 3}, "exactly one of"),
    (PPO, "env/observation", {}, "exactly one of"),
    (PPO, "env/action", None, "`env` must have either"),
    (PPO, "env/id", "CartPole-v1", "`env` must have either"),
    (PPO, "training/batch_size", 0, "must hold, but got 0"),
    (PPO, "training/total_timesteps", 10**30, "must hold"),
    (PPO, "machine/ram", -1, "between 0 and 8 EiB"),
    (PPO, "machine/ram", 10**30, "between 0 and 8 EiB"),
    (PPO, "machine/ram", "1e30GB", "must look like"),
    (PPO, "machine/ram", "-5GB", "must look like"),
    (PPO, "machine/ram", "9" * 5000, "between 0 and 8 EiB"),
    (DQN, "training/train_freq", [1, "step", 3], "must be a number, or a number and"),
    (GENERIC, "phases", ["a", "a"], "name each phase once"),
    (GENERIC, "arrays", [{"path": "a", "shape": []}] * 2, "a path of its own"),
    (GENERIC, "networks", [{"name": "a", "parameters": 1}] * 2, "a name of its own"),
    (GENERIC, "networks", [{"name": "a"}], "either `layers` or `parameters`"),
    (GENERIC, "networks", [{"name": "a", "layers": ["relu"]}], "must have `input`"),
    (GENERIC, "growth", {"size": "agents"}, "must have `by`"),
    (GENERIC, "files", {"files": 3}, "must have `size`"),
    # what the framework would refuse
    (DQN, "env/action", {"shape": [2]}, "DQN takes Discrete actions only"),
    (PPO | {"algorithm": "SAC"}, "name", "x", "SAC takes Box actions only"),
    (PPO, "env/action", {"tuple": [{"discrete": 2}]}, "does not take Dict or Tuple actions"),
    (PPO, "policy/class", "CnnPolicy", "takes uint8 images"),
    (PPO, "policy/class", "MultiInputPolicy", "MultiInput policies and Dict go together"),
    (PPO, "policy/class", "MlpLstmPolicy", "PPO does not take MlpLstmPolicy"),
    (PPO, "training/n_steps", 1, "n_steps × n_envs > 1 must hold"),
    (DQN, "training/replay_buffer_class", "HerReplayBuffer", "needs a Dict observation"),
    (
        PPO | {"algorithm": "ARS", "framework": "sb3-contrib"},
        "policy/class",
        "CnnPolicy",
        "ARS does not take CnnPolicy",
    ),
    (PPO | {"algorithm": "ARS", "framework": "sb3-contrib"}, "buffer", "lean", "ARS has no buffer to be lean"),
    (DQN | {"buffer": "lean"}, "training/optimize_memory_usage", True, "holds next observations once by itself"),
    (PPO, "buffer", {"kind": "lean", "when_full": "forget"}, "is for replay buffers"),
    (PPO, "buffer", {"kind": "stock", "compact": True}, "are for `kind: lean` only"),
]


@pytest.mark.parametrize(
    ("buffer", "written"),
    [
        ("stock", None),
        ({"kind": "stock"}, None),
        ("lean", "lean"),
        ({"kind": "lean", "compact": False, "when_full": "error"}, "lean"),
        ({"kind": "lean", "compact": True}, {"kind": "lean", "compact": True}),
        (
            {"kind": "lean", "memory_limit": "2GB", "when_full": "forget"},
            {"kind": "lean", "memory_limit": 2 * 10**9, "when_full": "forget"},
        ),
    ],
)
def test_buffers_survive_being_written(buffer: Any, written: Any) -> None:
    run = run_from_mapping(DQN | {"buffer": buffer})
    mapping = write_run(run)
    assert mapping.get("buffer") == written
    assert run_from_mapping(mapping) == run


@pytest.mark.parametrize(
    ("mapping", "path", "value", "message"), REFUSED, ids=[f"{case[1]}: {case[3]}" for case in REFUSED]
)
def test_refused(mapping: dict[str, Any], path: str, value: Any, message: str) -> None:
    with pytest.raises(RunFileError, match=re.escape(message)) as caught:
        run_from_mapping(changed(mapping, path, value))
    assert len(str(caught.value)) < 600


TYPED = [
    ("framework: sb3\nalgorithm: PPO\nenv:\n  observation: {shape: [4]}\n  action: {discrete: 2}\n  n_env: 3\n", 6),
    ("framework: sb3\nalgorithm: PPO\nenv:\n  observation: {shape: [4]}\n  action: {discrete: 2}\n  n_envs: many\n", 6),
    (
        "framework: sb3\nalgorithm: PPO\nenv:\n  action: {discrete: 2}\n  observation:\n    dtype: floot\n",
        6,
    ),
    ("framework: generic\nsizes: {n: 3}\narrays:\n  - path: a\n    shape: [n]\n  - path: b\n    shape: [m]\n", 7),
    ("framework: sb3\n\nalgorithm: PPO\nenv: {id: CartPole-v1}\ntraining:\n  n_steps: 3\n  nstep: 3\n", 7),
    ("framework: sb3\nname: a\nname: b\n", 3),
    ("framework: sb3\nname: 2001-01-01\n", 2),
    ("framework: sb3\nenv: [\n", 3),
]


@pytest.mark.parametrize(("text", "line"), TYPED)
def test_complaints_say_the_line(tmp_path: Path, text: str, line: int) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(RunFileError) as caught:
        read_run(path)
    assert caught.value.line == line
    assert str(caught.value).startswith(f"{path}:{line}: ")


def test_framework_must_be_said() -> None:
    with pytest.raises(RunFileError, match="must say `framework`"):
        run_from_mapping({"algorithm": "PPO"})


def test_a_mapping_from_a_program_has_no_line() -> None:
    with pytest.raises(RunFileError) as caught:
        run_from_mapping(PPO | {"nothing": 1})
    assert caught.value.line is None


@pytest.mark.parametrize("text", ["1e6", "1_000_000", "1000000", "1.0e+6", "1E6", "1000000.0"])
def test_a_million_in_every_spelling(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(
        f"framework: sb3\nalgorithm: PPO\nenv: {{id: CartPole-v1}}\ntraining: {{total_timesteps: {text}}}\n"
    )
    run = read_run(path)
    assert run.training.total_timesteps == 1_000_000
    assert type(run.training.total_timesteps) is int


def test_keys_that_yaml_takes_for_something_else(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    space = "{dict: {on: {shape: [3]}, 1: {shape: [2]}, ~: {discrete: 2}}}"
    env = f"env:\n  observation: {space}\n  action: {{discrete: 2}}\n"
    path.write_text(f"framework: sb3\nalgorithm: PPO\n{env}policy: {{class: MultiInputPolicy}}\n")
    run = read_run(path)
    assert [key for key, _ in run.env.observation.items] == ["on", "1", "~"]


@pytest.mark.parametrize("text", ["2.10", "2.3", "2.9.2", "2"])
def test_versions_are_read_as_written(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(f"framework: sb3\nframework_version: {text}\nalgorithm: PPO\nenv: {{id: CartPole-v1}}\nname: 007\n")
    run = read_run(path)
    assert (run.framework_version, run.name) == (text, "007")


def test_name_is_the_file_name_by_default(tmp_path: Path) -> None:
    path = tmp_path / "pong.yaml"
    path.write_text("framework: sb3\nalgorithm: PPO\nenv: {id: CartPole-v1}\n")
    assert read_run(path).name == "pong"


def test_every_setting_of_another_algorithm_is_taken() -> None:
    """A setting that does nothing is not a typing mistake: a check says so, the reader takes it."""
    run = run_from_mapping(changed(PPO, "training/buffer_size", 1000))
    assert "buffer_size" in run.training.given


def test_other_settings_are_kept() -> None:
    run = run_from_mapping(changed(PPO, "training", {"learning_rate": 3e-4, "gamma": 0.9, "n_steps": 8}))
    assert dict(run.training.other) == {"learning_rate": 3e-4, "gamma": 0.9}
    assert run.training.given == {"learning_rate", "gamma", "n_steps"}


def test_load_run_names_the_file_in_what_the_framework_would_refuse(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("framework: sb3\nalgorithm: SAC\nenv: {id: CartPole-v1}\n")
    with pytest.raises(InputError, match=r"run\.yaml: SAC takes Box actions only"):
        load_run(path)


# Round trips: every part of the schema, made by strategies.

words = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=8)
names = st.from_regex(r"[a-z][a-z0-9_]{0,7}", fullmatch=True)
import_paths = st.builds("{}.{}:{}".format, names, names, names).filter(
    lambda path: all(part for part in path.split("."))
)
small = st.integers(1, 50)
counts = st.integers(1, 10**9)
byte_sizes = st.integers(0, 2**50)
dtypes = st.sampled_from(sorted(ITEM_BYTES))
widths = st.lists(st.integers(1, 512), max_size=3)
# A setting written 1e5 is a number, whatever wrote it.
setting_words = words.filter(lambda word: not word[:1].isdigit() and word[:1] not in "+-")
plain_settings = (
    st.booleans() | st.integers(-(10**6), 10**6) | st.floats(allow_nan=False, allow_infinity=False) | setting_words
)


def optional(**parts: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=parts)


boxes = st.fixed_dictionaries(
    {"shape": st.lists(small, max_size=4), "dtype": dtypes},
    optional={"low": st.floats(-(10**6), 0), "high": st.floats(0, 10**6)},
)
leaf_spaces = (
    boxes
    | st.fixed_dictionaries({"discrete": counts})
    | st.fixed_dictionaries({"multi_discrete": st.lists(small, min_size=1, max_size=3)})
    | st.fixed_dictionaries({"multi_binary": st.lists(small, min_size=1, max_size=2)})
)
dict_spaces = st.fixed_dictionaries({"dict": st.dictionaries(words, leaf_spaces, min_size=1, max_size=3)})

conv_names = st.sampled_from(["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"])


@st.composite
def convolutions(draw: Any) -> dict[str, Any]:
    name = draw(conv_names)
    axes = small | st.lists(small, min_size=int(name[-2]), max_size=int(name[-2]))
    options = {"stride": axes, "padding": axes, "bias": st.booleans()}
    if "transpose" in name:
        options["output_padding"] = axes
    return {name: draw(st.fixed_dictionaries({"out": small, "kernel": axes}, optional=options))}


@st.composite
def pools(draw: Any) -> dict[str, Any]:
    dims = draw(st.integers(1, 3))
    axes = small | st.lists(small, min_size=dims, max_size=dims)
    kind = draw(st.sampled_from(["max", "avg"]))
    if draw(st.booleans()):
        return {f"adaptive_{kind}pool{dims}d": draw(axes)}
    whole = st.fixed_dictionaries({"kernel": axes}, optional={"stride": axes})
    return {f"{kind}pool{dims}d": draw(axes | whole)}


layer_lists = st.lists(
    st.sampled_from([*ACTIVATIONS, "batchnorm", "layernorm", "flatten"])
    | convolutions()
    | pools()
    | st.fixed_dictionaries({"linear": small | st.fixed_dictionaries({"out": small}, optional={"bias": st.booleans()})})
    | st.fixed_dictionaries(
        {
            "lstm": small
            | st.fixed_dictionaries({"hidden": small}, optional={"layers": small, "bidirectional": st.booleans()})
        }
    )
    | st.fixed_dictionaries({"parameter": small | st.lists(small, max_size=3)})
    | st.fixed_dictionaries(
        {
            "opaque": st.fixed_dictionaries(
                {key: st.integers(0, 10**9) for key in ("parameters", "tensors", "buffer_bytes", "saved", "widest")}
                | {"name": words, "output": st.lists(small, min_size=1, max_size=3)}
            )
        }
    ),
    min_size=1,
    max_size=4,
)

budgets = optional(ram=byte_sizes, vram=byte_sizes, cores=small)
process_parts = optional(
    floor=byte_sizes,
    worker=byte_sizes,
    env=byte_sizes,
    workers=st.integers(0, 64),
    start_method=st.sampled_from(["fork", "forkserver", "spawn"]),
    threads=small,
    thread_stack=byte_sizes,
)
devices = st.sampled_from(["cpu", "cuda", "cuda:0", "cuda:12"])


def environments(algorithm: str) -> st.SearchStrategy[dict[str, Any]]:
    spec = ALGORITHMS[algorithm]
    discrete = algorithm in ("DQN", "QRDQN", "MaskablePPO")
    action = st.fixed_dictionaries({"discrete": small}) if discrete else boxes
    if spec.on_policy and not discrete:
        action = action | st.fixed_dictionaries({"multi_binary": small})
    sources = (
        st.fixed_dictionaries({"observation": leaf_spaces, "action": action})
        | st.fixed_dictionaries({"id": words}, optional={"wrappers": st.lists(import_paths, max_size=2)})
        | st.fixed_dictionaries({"make": import_paths}, optional={"wrappers": st.lists(import_paths, max_size=2)})
    )
    rest = optional(
        n_envs=st.integers(2, 64),
        workers=st.sampled_from(["in-process", "subprocess"]),
        start_method=st.sampled_from(["fork", "forkserver", "spawn"]),
        frame_stack=small,
        transpose_images=st.booleans(),
        normalize=st.booleans(),
        episode_length=counts,
    )
    return st.builds(lambda source, other: source | other, sources, rest)


_MODELLED = {
    "total_timesteps": counts,
    "n_steps": st.integers(2, 5000),
    "batch_size": counts,
    "n_epochs": small,
    "buffer_size": counts,
    "learning_starts": st.integers(0, 10**6),
    "train_freq": small
    | st.tuples(small, st.sampled_from(["step", "episode"])).map(list)
    | st.lists(small, min_size=1, max_size=1),
    "gradient_steps": st.integers(1, 10) | st.just(-1) | st.just(0),
    "optimize_memory_usage": st.booleans(),
    "replay_buffer_class": st.just("ReplayBuffer"),
    "replay_buffer_kwargs": optional(handle_timeout_termination=st.booleans()),
    "use_sde": st.booleans(),
    "n_delta": small,
}
trainings = optional(**_MODELLED, **dict.fromkeys(sorted(KNOWN_SETTINGS - set(_MODELLED)), plain_settings))
policy_options = optional(
    net_arch=widths
    | st.fixed_dictionaries({"pi": widths}, optional={"vf": widths})
    | st.fixed_dictionaries({"qf": widths}),
    features=layer_lists | import_paths,
    features_dim=counts,
    share_features_extractor=st.booleans(),
    optimizer=st.sampled_from(["adam", "adamw", "rmsprop", "sgd", "sgd+momentum"]),
    n_critics=small,
    n_quantiles=small,
    normalize_images=st.booleans(),
    ortho_init=st.booleans(),
    log_std_init=plain_settings,
)
lstm_options = optional(lstm_hidden_size=counts, n_lstm_layers=small, enable_critic_lstm=st.booleans())


@st.composite
def framework_runs(draw: Any) -> dict[str, Any]:
    algorithm = draw(st.sampled_from(sorted(ALGORITHMS)))
    env = draw(environments(algorithm))
    policy = draw(policy_options)
    if algorithm == "RecurrentPPO":
        policy |= {"class": "MlpLstmPolicy"} | draw(lstm_options)
    mapping = {"framework": ALGORITHMS[algorithm].framework, "algorithm": algorithm, "env": env, "policy": policy}
    return mapping | draw(
        optional(
            name=words,
            framework_version=st.sampled_from(["2.3.2", "2.9", "2.10.0a1"]),
            training=trainings,
            device=devices,
            machine=budgets,
            processes=process_parts,
            evaluation=optional(
                n_envs=small,
                workers=st.sampled_from(["in-process", "subprocess"]),
                eval_freq=counts,
                n_eval_episodes=small,
            ),
            checkpoint=optional(
                save_freq=counts, save_replay_buffer=st.booleans(), save_vecnormalize=st.booleans(), keep=small
            ),
        )
    )


@st.composite
def generic_runs(draw: Any) -> dict[str, Any]:
    sizes = draw(st.dictionaries(names, counts, max_size=3))
    phases = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    dim = st.integers(1, 1000) | (st.sampled_from(sorted(sizes)) if sizes else st.nothing())
    dims = dim | st.lists(dim, max_size=3)
    some_phases = st.lists(st.sampled_from(phases), min_size=1, max_size=3, unique=True)
    arrays = st.lists(
        st.fixed_dictionaries(
            {"path": words},
            optional={
                "shape": dims,
                "dtype": dtypes,
                "count": dims,
                "every": dims,
                "where": st.sampled_from(["ram", "vram", "virtual", "disk"]),
                "phases": some_phases,
            },
        ),
        max_size=3,
        unique_by=lambda array: array["path"],
    )
    common = {
        "activations_per_row": st.integers(0, 10**6),
        "optimizer": st.sampled_from(["adam", "sgd", "none"]),
        "targets": st.integers(0, 3),
        "copies": dims,
        "active": dims,
        "rows": dims,
    }
    shape = st.lists(dim, min_size=1, max_size=3)
    networks = st.lists(
        (
            st.fixed_dictionaries({"name": words, "parameters": counts}, optional=common)
            | st.fixed_dictionaries({"name": words, "layers": layer_lists, "input": shape}, optional=common)
        ).flatmap(lambda network: some_phases.map(lambda chosen: network | {"graph_phases": chosen})),
        max_size=2,
        unique_by=lambda network: network["name"],
    )
    parts: dict[str, Any] = {
        "name": words,
        "algorithm": words,
        "arrays": arrays,
        "networks": networks,
        "files": st.fixed_dictionaries(
            {"size": byte_sizes}, optional={"per": words, "files": small, "total": small, "keep": small}
        ),
        "notes": st.lists(words, max_size=2),
        "device": devices,
        "machine": budgets,
        "processes": process_parts,
    }
    if sizes:
        some = st.sampled_from(sorted(sizes))
        parts["capacity"] = some
        parts["growth"] = st.fixed_dictionaries({"size": some, "by": counts}, optional={"per": words, "total": counts})
    return {"framework": "generic", "sizes": sizes, "phases": phases} | draw(optional(**parts))


@settings(max_examples=250, deadline=None)
@given(mapping=framework_runs())
def test_framework_runs_survive_being_written(mapping: dict[str, Any]) -> None:
    run = run_from_mapping(mapping)
    assert isinstance(run, FrameworkRun)
    assert run_from_mapping(write_run(run)) == run


@settings(max_examples=250, deadline=None)
@given(mapping=generic_runs())
def test_generic_runs_survive_being_written(mapping: dict[str, Any]) -> None:
    run = run_from_mapping(mapping)
    assert isinstance(run, GenericRun)
    assert run_from_mapping(write_run(run)) == run


@pytest.fixture
def through_a_file(tmp_path: Path) -> Callable[[dict[str, Any]], Any]:
    def go(mapping: dict[str, Any]) -> Any:
        path = tmp_path / "run.yaml"
        path.write_text(yaml.safe_dump(mapping, allow_unicode=True, sort_keys=False), encoding="utf-8")
        return read_run(path)

    return go


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mapping=framework_runs() | generic_runs())
def test_runs_survive_a_file(through_a_file: Callable[[dict[str, Any]], Any], mapping: dict[str, Any]) -> None:
    run = run_from_mapping(mapping)
    assert through_a_file(write_run(run)) == run


def test_dict_observations_survive_a_file(through_a_file: Callable[[dict[str, Any]], Any]) -> None:
    @settings(max_examples=50, deadline=None)
    @given(space=dict_spaces)
    def survive(space: dict[str, Any]) -> None:
        env = {"observation": space, "action": {"discrete": 3}}
        run = run_from_mapping(PPO | {"env": env, "policy": {"class": "MultiInputPolicy"}})
        assert run_from_mapping(write_run(run)) == run
        assert through_a_file(write_run(run)) == run

    survive()


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def spoilt_runs(draw: Any) -> dict[str, Any]:
    """A right run with one value, anywhere in it, replaced by anything."""
    mapping = copy.deepcopy(draw(framework_runs() | generic_runs()))
    inner: Any = mapping
    while True:
        places = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        if not places:
            return mapping
        place = draw(st.sampled_from(places))
        if isinstance(inner[place], dict | list) and inner[place] and draw(st.booleans()):
            inner = inner[place]
            continue
        inner[place] = draw(anything)
        return mapping


@settings(max_examples=400, deadline=None)
@given(mapping=spoilt_runs())
def test_a_spoilt_run_is_refused_or_read(mapping: dict[str, Any]) -> None:
    try:
        run = run_from_mapping(mapping)
    except RlmemError:
        return
    assert run_from_mapping(write_run(run)) == run
