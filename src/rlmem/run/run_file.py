"""Run files: YAML in, a Run out, and a Run written back as the mapping that a run file holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rlmem.run.algorithms import ALGORITHMS, KNOWN_SETTINGS, REPLAY_CLASSES, Algorithm
from rlmem.run.document import Node, as_node, read_document
from rlmem.run.generic_file import read_generic
from rlmem.run.layer_reader import read_layers
from rlmem.run.model import (
    Buffer,
    Checkpoint,
    Env,
    Evaluation,
    FrameworkRun,
    NetArch,
    Policy,
    Run,
    Setting,
    Training,
)
from rlmem.run.section import Section
from rlmem.run.shared_sections import read_budget, read_device, read_processes
from rlmem.run.space_reader import read_space
from rlmem.run.validation import complaint

FRAMEWORKS: Final = ("sb3", "sb3-contrib", "generic")
WORKERS: Final = ("in-process", "subprocess")
START_METHODS: Final = ("fork", "forkserver", "spawn")
BUFFERS: Final = ("stock", "lean")
WHEN_FULL: Final = ("error", "forget")
LOSSY: Final = ("float16",)
OPTIMIZERS: Final = ("adam", "adamw", "rmsprop", "sgd", "sgd+momentum")
POLICIES: Final = (
    *(f"{head}{lstm}Policy" for lstm in ("", "Lstm") for head in ("Mlp", "Cnn", "MultiInput")),
    "LinearPolicy",
)


def read_run(path: str | Path) -> Run:
    """Return the run that a file describes; its spaces stay unread where it names an environment instead."""
    return _run(Section(read_document(Path(path)), name="", file=str(path)), default_name=Path(path).stem)


def run_from_mapping(mapping: Mapping[str, Any]) -> Run:
    """Return the run that a plain mapping describes, as `rlmem.run.run_writer.write_run` gives it."""
    return _run(Section(as_node(mapping), name="", file="run"), default_name="run")


def _run(root: Section, *, default_name: str) -> Run:
    framework = root.choice("framework", FRAMEWORKS)
    if framework is None:
        raise root.error(f"a run file must say `framework`: one of {', '.join(FRAMEWORKS)}")
    name = root.text("name") or default_name
    run: Run = read_generic(root, name) if framework == "generic" else _framework_run(root, framework, name)
    root.finish()
    if isinstance(run, FrameworkRun) and (problem := complaint(run)):
        raise root.error(problem)
    return run


def _framework_run(root: Section, framework: str, name: str) -> FrameworkRun:
    algorithm = root.as_choice(root.required("algorithm"), "algorithm", ALGORITHMS)
    spec = ALGORITHMS[algorithm]
    return FrameworkRun(
        name=name,
        framework=framework,
        framework_version=_version(root),
        algorithm=algorithm,
        env=_env(root.inner(root.required("env"), "env")),
        training=_training(root.section("training"), spec),
        policy=_policy(root.section("policy"), spec),
        buffer=_buffer(root),
        device=read_device(root),
        budget=read_budget(root),
        processes=read_processes(root),
        evaluation=_evaluation(root.section("evaluation")),
        checkpoint=_checkpoint(root.section("checkpoint")),
    )


def _version(root: Section) -> str | None:
    node = root.node("framework_version")
    if node is not None and node.text is None and isinstance(node.value, float):
        raise root.error('`framework_version` must be quoted, or YAML makes 2.1 of 2.10: write "2.10"', node)
    version = root.text("framework_version")
    if version is not None and not all(part.isdigit() for part in version.split(".")[:2]):
        raise root.error(
            f"`framework_version` must look like 2.3.2, but got {version!r}", root.node("framework_version")
        )
    return version


def _env(section: Section) -> Env:
    env = Env(
        observation=read_space(section, "observation"),
        action=read_space(section, "action"),
        id=section.text("id"),
        make=_import_path(section, "make"),
        wrappers=_wrappers(section),
        n_envs=section.integer("n_envs", high=10**6) or 1,
        workers=section.choice("workers", WORKERS) or "in-process",
        start_method=section.choice("start_method", START_METHODS),
        frame_stack=section.integer("frame_stack", high=10**4) or 1,
        transpose_images=section.boolean("transpose_images"),
        normalize=bool(section.boolean("normalize")),
        episode_length=section.integer("episode_length"),
    )
    section.finish()
    described = env.observation is not None and env.action is not None
    if sum((env.id is not None, env.make is not None, described)) != 1 or (
        not described and (env.observation or env.action)
    ):
        raise section.error("`env` must have either `observation` and `action`, or `id`, or `make`")
    return env


def _wrappers(section: Section) -> tuple[str, ...]:
    return tuple(_check_import_path(section, node, "wrappers") for node in section.items("wrappers"))


def _import_path(section: Section, key: str) -> str | None:
    node = section.node(key)
    return None if node is None else _check_import_path(section, node, key)


def _check_import_path(section: Section, node: Node, key: str) -> str:
    module, _, name = str(node.value).partition(":")
    if not (name.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise section.wrong(key, "of the form package.module:name", node)
    return str(node.value)


def _training(section: Section | None, spec: Algorithm) -> Training:
    if section is None:
        return _training_defaults(spec)
    replay = section.section("replay_buffer_kwargs")
    frequency, unit = _train_freq(section, spec)
    steps = section.integer("gradient_steps", low=-1)
    training = Training(
        total_timesteps=section.integer("total_timesteps"),
        n_steps=section.integer("n_steps") or spec.n_steps,
        batch_size=section.integer("batch_size") or spec.batch_size,
        n_epochs=section.integer("n_epochs") or spec.n_epochs,
        buffer_size=section.integer("buffer_size") or spec.buffer_size,
        learning_starts=section.integer("learning_starts", low=0),
        train_freq=frequency,
        train_freq_unit=unit,
        gradient_steps=1 if steps is None else steps,
        optimize_memory_usage=bool(section.boolean("optimize_memory_usage")),
        handle_timeout_termination=_handles_timeouts(replay),
        replay_buffer_class=section.choice("replay_buffer_class", REPLAY_CLASSES),
        use_sde=bool(section.boolean("use_sde")),
        n_delta=section.integer("n_delta") or 8,
        other=_known_settings(section),
        given=section.given & KNOWN_SETTINGS,
    )
    section.finish()
    return training


def _training_defaults(spec: Algorithm) -> Training:
    return Training(
        n_steps=spec.n_steps,
        batch_size=spec.batch_size,
        n_epochs=spec.n_epochs,
        buffer_size=spec.buffer_size,
        train_freq=spec.train_freq,
    )


def _train_freq(section: Section, spec: Algorithm) -> tuple[int, str]:
    nodes = section.items("train_freq")
    if not nodes:
        return spec.train_freq, "step"
    if len(nodes) > 2:
        raise section.error("`training.train_freq` must be a number, or a number and `step` or `episode`", nodes[0])
    unit = section.as_choice(nodes[1], "train_freq", ("step", "episode")) if len(nodes) == 2 else "step"
    return section.as_integer(nodes[0], "train_freq"), unit


def _handles_timeouts(section: Section | None) -> bool:
    if section is None:
        return True
    handles = section.boolean("handle_timeout_termination") is not False
    for key in ("n_sampled_goal", "goal_selection_strategy", "copy_info_dict", "n_steps", "gamma"):
        section.node(key)
    section.finish()
    return handles


def _known_settings(section: Section) -> tuple[tuple[str, Setting], ...]:
    """Return the settings that do not bear on memory, having checked that some algorithm takes them."""
    return tuple(_setting(section, key, node, known=KNOWN_SETTINGS) for key, node in section.rest())


def _setting(section: Section, key: str, node: Node, *, known: frozenset[str]) -> tuple[str, Setting]:
    if key not in known:
        raise section.unknown(key, node, known)
    if isinstance(node.value, dict | list) or node.value != node.value:
        raise section.wrong(key, "one value", node)
    return key, node.value


_POLICY_EXTRAS: Final = frozenset(
    {
        "activation_fn",
        "ortho_init",
        "log_std_init",
        "full_std",
        "squash_output",
        "use_expln",
        "clip_mean",
        "batch_norm",
    }
)


def _policy(section: Section | None, spec: Algorithm) -> Policy:
    default = "MlpLstmPolicy" if spec.name == "RecurrentPPO" else "MlpPolicy"
    if section is None:
        return Policy(class_name=default)
    policy = Policy(
        class_name=section.choice("class", POLICIES) or default,
        net_arch=_net_arch(section),
        features=_features(section),
        features_dim=section.integer("features_dim"),
        share_features_extractor=section.boolean("share_features_extractor"),
        optimizer=section.choice("optimizer", OPTIMIZERS),
        n_critics=section.integer("n_critics", high=1000),
        n_quantiles=section.integer("n_quantiles", high=10**6),
        lstm_hidden_size=section.integer("lstm_hidden_size") or 256,
        n_lstm_layers=section.integer("n_lstm_layers", high=1000) or 1,
        shared_lstm=bool(section.boolean("shared_lstm")),
        enable_critic_lstm=section.boolean("enable_critic_lstm") is not False,
        normalize_images=section.boolean("normalize_images") is not False,
        other=tuple(_setting(section, key, node, known=_POLICY_EXTRAS) for key, node in section.rest()),
    )
    section.finish()
    return policy


def _features(section: Section) -> tuple[Any, ...] | str | None:
    node = section.node("features")
    if node is None:
        return None
    return read_layers(section, "features") if isinstance(node.value, list) else _import_path(section, "features")


def _net_arch(section: Section) -> NetArch | None:
    node = section.node("net_arch")
    if node is None:
        return None
    if not isinstance(node.value, dict):
        hidden = _widths(section, "net_arch")
        return NetArch(policy=hidden, value=hidden)
    inner = section.inner(node, "net_arch")
    policy, value, quality = (_widths(inner, key) for key in ("pi", "vf", "qf"))
    inner.finish()
    return NetArch(policy=policy, value=value or quality)


def _widths(section: Section, key: str) -> tuple[int, ...]:
    return tuple(section.as_integer(node, key, high=10**9) for node in section.items(key))


def _buffer(root: Section) -> Buffer:
    """Return how observations are held: a word, or a section with the word and what goes with it."""
    node = root.node("buffer")
    if node is None:
        return Buffer()
    if not isinstance(node.value, dict):
        return Buffer(kind=root.as_choice(node, "buffer", BUFFERS))
    section = root.inner(node, "buffer")
    buffer = Buffer(
        kind=section.as_choice(section.required("kind"), "kind", BUFFERS),
        compact=bool(section.boolean("compact")),
        memory_limit=section.size("memory_limit"),
        when_full=section.choice("when_full", WHEN_FULL) or "error",
        lossy=section.choice("lossy", LOSSY),
    )
    section.finish()
    return buffer


def _evaluation(section: Section | None) -> Evaluation | None:
    if section is None:
        return None
    evaluation = Evaluation(
        n_envs=section.integer("n_envs", high=10**6) or 1,
        workers=section.choice("workers", WORKERS) or "in-process",
        eval_freq=section.integer("eval_freq"),
        n_eval_episodes=section.integer("n_eval_episodes") or 5,
    )
    section.finish()
    return evaluation


def _checkpoint(section: Section | None) -> Checkpoint | None:
    if section is None:
        return None
    checkpoint = Checkpoint(
        save_freq=section.integer("save_freq"),
        save_replay_buffer=bool(section.boolean("save_replay_buffer")),
        save_vecnormalize=bool(section.boolean("save_vecnormalize")),
        keep=section.integer("keep"),
    )
    section.finish()
    return checkpoint


__all__ = ["read_run", "run_from_mapping"]
