"""The hyperparameter files of rl-baselines3-zoo as runs.

A file has an entry for each environment, besides ``atari`` and ``default`` for those it does not list. Settings
that the zoo evaluates as Python (``policy_kwargs: "dict(net_arch=[256, 256])"``) are parsed and never evaluated.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import yaml

from rlmem.errors import InputError, RunFileError
from rlmem.run.algorithms import ALGORITHMS, KNOWN_SETTINGS, REPLAY_CLASSES, Algorithm
from rlmem.run.document import MAX_FILE_BYTES, MAX_NODES
from rlmem.run.model import FrameworkRun
from rlmem.run.python_literal import Dotted, read_literal
from rlmem.run.run_file import OPTIMIZERS, POLICIES, run_from_mapping
from rlmem.run.section import nearest

PREFIX: Final = "zoo:"
FOLDER_VARIABLE: Final = "RLMEM_ZOO"
_NAMES: Final = {name.lower(): name for name in ALGORITHMS} | {"ppo_lstm": "RecurrentPPO"}
_ATARI: Final = re.compile(r"ALE/|.*NoFrameskip-v\d+$")
_SHARED_ENTRIES: Final = ("atari", "default")
_WITHOUT_MEMORY: Final = ("noise_type", "noise_std", "monitor_kwargs")
_TAKEN: Final = (
    *("n_envs", "n_timesteps", "frame_stack", "normalize", "env_wrapper", "vec_env_wrapper"),
    *("policy", "policy_kwargs", "replay_buffer_class", "replay_buffer_kwargs"),
)
_REPLAY_KEYWORDS: Final = (
    *("handle_timeout_termination", "n_sampled_goal", "goal_selection_strategy", "copy_info_dict"),
    *("n_steps", "gamma"),
)
_POLICY_FIELDS: Final = (
    *("share_features_extractor", "n_critics", "n_quantiles", "lstm_hidden_size", "n_lstm_layers", "shared_lstm"),
    *("enable_critic_lstm", "normalize_images", "ortho_init", "log_std_init", "full_std", "squash_output"),
    *("use_expln", "clip_mean", "batch_norm"),
)
_STOCK_EXTRACTORS: Final = ("FlattenExtractor", "NatureCNN", "CombinedExtractor")


def read_zoo(file: Path, key: str, algorithm: str | None = None) -> tuple[FrameworkRun, tuple[str, ...]]:
    """Return the run that a zoo file has for the environment ``key``, and what of its entry was left out.

    The algorithm is the file's name (``dqn.yml``) unless it is given. The spaces stay unread.
    """
    spec = _algorithm(algorithm or file.stem, file)
    entries = _read_entries(file)
    notes: list[str] = []
    entry = _entry(entries, key, file, notes)
    mapping = _Entry(entry, spec, file, notes).mapping(key)
    try:
        run = run_from_mapping(mapping)
    except RunFileError as error:
        raise RunFileError(f"the entry for {key}: {error.reason}", file=str(file)) from None
    except RecursionError:
        raise RunFileError(f"the entry for {key} contains itself", file=str(file)) from None
    assert isinstance(run, FrameworkRun)  # noqa: S101 - the mapping names an algorithm
    return run, tuple(notes)


def read_zoo_name(text: str) -> tuple[FrameworkRun, tuple[str, ...]]:
    """Return the run of ``zoo:dqn/BreakoutNoFrameskip-v4`` from the zoo's own files, which rlmem does not ship."""
    algorithm, _, key = text.removeprefix(PREFIX).partition("/")
    if not key or not re.fullmatch(r"\w+", algorithm):
        raise InputError(f"a zoo run must look like zoo:dqn/BreakoutNoFrameskip-v4, but got {text!r}")
    folders = _folders()
    candidates = [folder / f"{algorithm.lower()}.yml" for folder in folders]
    file = next((candidate for candidate in candidates if candidate.is_file()), None)
    if file is None and any(folder.is_dir() for folder in folders):
        known = sorted({path.stem for folder in folders for path in folder.glob("*.yml")})
        raise InputError(f"{text}: the zoo has no file {algorithm.lower()}.yml{nearest(algorithm.lower(), known)}")
    if file is None:
        raise InputError(
            f"{text}: the zoo's hyperparameter files are not here: pip install rl_zoo3, "
            f"or name the folder that holds them in {FOLDER_VARIABLE}"
        )
    return read_zoo(file, key)


def _folders() -> tuple[Path, ...]:
    """Return where the zoo's files may be: the folder that the user names, else the installed package's."""
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named), Path(named) / "hyperparams"
    spec = find_spec("rl_zoo3")
    if spec is None or spec.origin is None:
        return ()
    package = Path(spec.origin).parent
    return package / "hyperparams", package.parent / "hyperparams"


def _algorithm(name: str, file: Path) -> Algorithm:
    known = _NAMES.get(name.lower())
    if known is None:
        raise RunFileError(
            f"the algorithm must be one of {', '.join(_NAMES)}, but got {name!r}; "
            "a file that is not named after its algorithm needs to be told it",
            file=str(file),
        )
    return ALGORITHMS[known]


class _Loader(yaml.SafeLoader):
    """YAML without objects; merge keys are the zoo's habit and are followed, within bounds."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > MAX_NODES:
            raise yaml.YAMLError(f"merge keys make more than {MAX_NODES:,} values")


def _read_entries(file: Path) -> Mapping[str, Any]:
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise RunFileError("a zoo file is at most 1 MiB, but this is longer", file=str(file))
        entries = yaml.load(data, _Loader)  # noqa: S506 - it derives from SafeLoader
    except OSError as error:
        raise RunFileError(f"cannot be read: {error.strerror}", file=str(file)) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RunFileError(f"not valid YAML: {' '.join(str(error).split())}", file=str(file)) from None
    if not isinstance(entries, dict):
        raise RunFileError("a zoo file must have an entry for each environment", file=str(file))
    return entries


def _entry(entries: Mapping[str, Any], key: str, file: Path, notes: list[str]) -> Mapping[str, Any]:
    """Return the environment's entry, or the one that stands for all Atari games, or for all environments."""
    if key in _SHARED_ENTRIES:
        raise RunFileError(f"`{key}` is no environment; name one, such as BreakoutNoFrameskip-v4", file=str(file))
    shared = [name for name in _SHARED_ENTRIES if name in entries and (name != "atari" or _ATARI.match(key))]
    found = key if key in entries else next(iter(shared), None)
    if found is None:
        raise RunFileError(f"no entry for {key}{nearest(key, map(str, entries))}", file=str(file))
    if found == "default":
        notes.append(f"the file has no entry for {key}: its `default` is taken")
    if not isinstance(entries[found], dict):
        raise RunFileError(f"the entry for {found} must be a mapping", file=str(file))
    return {str(name): value for name, value in entries[found].items()}


class _Entry:
    """One entry of a zoo file on its way to becoming a run file's mapping."""

    def __init__(self, entry: Mapping[str, Any], spec: Algorithm, file: Path, notes: list[str]) -> None:
        self._entry, self._spec, self._file, self._notes = entry, spec, file, notes

    def mapping(self, key: str) -> dict[str, Any]:
        return {
            "name": f"{self._spec.name} on {key}",
            "framework": self._spec.framework,
            "algorithm": self._spec.name,
            "env": self._env(key),
            "training": self._training(),
            "policy": self._policy(),
        }

    def _env(self, key: str) -> dict[str, Any]:
        wrappers = [path for item in self._listed("env_wrapper") if (path := self._wrapper(item))]
        env: dict[str, Any] = {"id": key, "wrappers": wrappers, "n_envs": self._entry.get("n_envs")}
        if self._spec.name == "ARS":
            env["n_envs"] = 1  # the zoo gives ARS one environment, and its others to processes that evaluate
        env["frame_stack"] = self._entry.get("frame_stack")
        for item in self._listed("vec_env_wrapper"):
            env |= self._vector_wrapper(item)
        env["normalize"] = self._normalizes()
        if "env_kwargs" in self._entry:
            self._notes.append("`env_kwargs` are not given to the environment when its spaces are read")
        return env

    def _listed(self, key: str) -> list[Any]:
        value = self._entry.get(key)
        return value if isinstance(value, list) else [] if value is None else [value]

    def _wrapper(self, item: Any) -> str | None:
        """Return a wrapper as a run file names it; what it is called with has no place there."""
        name, keywords = next(iter(item.items())) if isinstance(item, dict) and item else (item, None)
        module, _, kind = str(name).rpartition(".")
        if keywords:
            self._notes.append(f"the wrapper {name} is used without its settings ({', '.join(map(str, keywords))})")
        if not module:
            self._notes.append(f"the wrapper {name} is left out: it has no module")
            return None
        return f"{module}:{kind}"

    def _vector_wrapper(self, item: Any) -> dict[str, Any]:
        name, keywords = next(iter(item.items())) if isinstance(item, dict) and item else (item, None)
        if str(name).endswith(".VecFrameStack") and isinstance(keywords, dict) and "n_stack" in keywords:
            return {"frame_stack": keywords["n_stack"]}
        self._notes.append(f"the vector wrapper {name} is left out")
        return {}

    def _normalizes(self) -> bool:
        """Return whether observations are normalised; rewards alone change no space."""
        value = self._literal("normalize")
        return bool(value.get("norm_obs", True)) if isinstance(value, dict) else bool(value)

    def _training(self) -> dict[str, Any]:
        training: dict[str, Any] = {"total_timesteps": self._entry.get("n_timesteps")}
        for key, value in self._entry.items():
            if key in _TAKEN or key in _WITHOUT_MEMORY or key == "env_kwargs":
                continue
            if key not in KNOWN_SETTINGS or (isinstance(value, dict | list) and key != "train_freq"):
                self._notes.append(f"`{key}` is left out")
            else:
                training[key] = value
        return training | self._replay()

    def _replay(self) -> dict[str, Any]:
        replay: dict[str, Any] = {}
        name = self._entry.get("replay_buffer_class")
        if name is not None:
            kind = str(name).rpartition(".")[2]
            if kind in REPLAY_CLASSES:
                replay["replay_buffer_class"] = kind
            else:
                self._notes.append(f"the replay buffer {name} is planned as the stock one")
        keywords = self._keywords("replay_buffer_kwargs")
        known = {key: value for key, value in keywords.items() if key in _REPLAY_KEYWORDS}
        self._notes += [f"`replay_buffer_kwargs.{key}` is left out" for key in keywords if key not in known]
        return replay | ({"replay_buffer_kwargs": known} if known else {})

    def _policy(self) -> dict[str, Any]:
        name = str(self._entry.get("policy", "MlpPolicy"))
        policy: dict[str, Any] = {"class": name}
        if name not in POLICIES:
            policy = {}
            self._notes.append(f"the policy {name} is planned as the algorithm's default")
        keywords = self._keywords("policy_kwargs")
        for key, value in keywords.items():
            policy |= self._policy_setting(key, value, keywords)
        return policy

    def _policy_setting(self, key: str, value: Any, keywords: Mapping[str, Any]) -> dict[str, Any]:
        readers: dict[str, Callable[[], dict[str, Any]]] = {
            "net_arch": lambda: {"net_arch": _net_arch(value)},
            "activation_fn": lambda: {"activation_fn": str(value)},
            "optimizer_class": lambda: self._optimizer(value, keywords),
            "optimizer_kwargs": dict,
            "features_extractor_class": lambda: self._extractor(value),
            "features_extractor_kwargs": lambda: self._extractor_keywords(value),
        }
        if key in readers:
            return readers[key]()
        if key in _POLICY_FIELDS and not isinstance(value, Dotted | dict | list):
            return {key: value}
        self._notes.append(f"`policy_kwargs.{key}` is left out")
        return {}

    def _optimizer(self, kind: Any, keywords: Mapping[str, Any]) -> dict[str, Any]:
        name = str(kind).rpartition(".")[2].lower().removesuffix("tflike")
        options = keywords.get("optimizer_kwargs")
        if name == "sgd" and isinstance(options, dict) and options.get("momentum"):
            name = "sgd+momentum"
        if name in OPTIMIZERS:
            return {"optimizer": name}
        self._notes.append(f"the optimizer {kind} is planned as the algorithm's default")
        return {}

    def _extractor(self, kind: Any) -> dict[str, Any]:
        if str(kind).rpartition(".")[2] not in _STOCK_EXTRACTORS:
            self._notes.append(f"the features extractor {kind} is left out: the policy's default stands for it")
        return {}

    def _extractor_keywords(self, value: Any) -> dict[str, Any]:
        options = value if isinstance(value, dict) else {}
        width = options.get("features_dim", options.get("cnn_output_dim"))
        rest = [key for key in options if key not in ("features_dim", "cnn_output_dim")]
        self._notes += [f"`features_extractor_kwargs.{key}` is left out" for key in rest]
        return {} if width is None else {"features_dim": width}

    def _keywords(self, key: str) -> dict[str, Any]:
        value = self._literal(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise RunFileError(f"`{key}` must be a mapping or text like dict(…)", file=str(self._file))
        return {str(name): item for name, item in value.items()}

    def _literal(self, key: str) -> Any:
        value = self._entry.get(key)
        if not isinstance(value, str):
            return value
        try:
            return read_literal(value)
        except ValueError as error:
            raise RunFileError(f"`{key}` must be plain values, but {error}", file=str(self._file)) from None


def _net_arch(value: Any) -> Any:
    """Return hidden layers; ``[dict(pi=…, vf=…)]``, as older versions wrote it, is that dict."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        return value[0]
    return value
