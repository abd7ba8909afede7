"""A Run written back as the mapping that a run file holds; what stands at its default is left out."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from rlmem.run.layer_reader import write_layer
from rlmem.run.model import (
    Budget,
    Buffer,
    Checkpoint,
    Env,
    FileGrowth,
    FrameworkRun,
    GenericRun,
    NamedArray,
    NamedNetwork,
    NetArch,
    Policy,
    Processes,
    Run,
    Training,
)
from rlmem.run.space_reader import write_space


def write_run(run: Run) -> dict[str, Any]:
    """Return the mapping from which `run_from_mapping` makes the same run again."""
    body = _framework(run) if isinstance(run, FrameworkRun) else _generic(run)
    return {key: value for key, value in body.items() if value not in (None, {}, [], ())}


def _framework(run: FrameworkRun) -> dict[str, Any]:
    return {
        "name": run.name,
        "framework": run.framework,
        "framework_version": run.framework_version,
        "algorithm": run.algorithm,
        "env": _env(run.env),
        "training": _training(run.training),
        "policy": _policy(run.policy),
        "buffer": _buffer(run.buffer),
        "device": run.device,
        "machine": _budget(run.budget),
        "processes": _processes(run.processes),
        "evaluation": _fields(run.evaluation) if run.evaluation else None,
        "checkpoint": _checkpoint(run.checkpoint),
    }


def _generic(run: GenericRun) -> dict[str, Any]:
    return {
        "name": run.name,
        "framework": run.framework,
        "algorithm": run.algorithm,
        "sizes": dict(run.sizes),
        "phases": list(run.phases),
        "arrays": [_array(array) for array in run.arrays],
        "networks": [_network(network) for network in run.networks],
        "growth": _fields(run.growth) if run.growth else None,
        "capacity": run.capacity,
        "files": _files(run.files) if run.files else None,
        "notes": list(run.notes),
        "device": run.device,
        "machine": _budget(run.budget),
        "processes": _processes(run.processes),
    }


def _env(env: Env) -> dict[str, Any]:
    plain = _fields(env, without=("observation", "action"))
    if env.observation is None or env.action is None:
        return plain
    spaces = {"observation": write_space(env.observation), "action": write_space(env.action)}
    return spaces | {key: value for key, value in plain.items() if key not in ("id", "make", "wrappers")}


def _training(training: Training) -> dict[str, Any]:
    """Return the settings that were given; defaults come back by themselves."""
    mapping = {key: getattr(training, key) for key in sorted(training.given) if hasattr(training, key)}
    if "train_freq" in mapping:
        mapping["train_freq"] = [training.train_freq, training.train_freq_unit]
    if "replay_buffer_kwargs" in training.given or not training.handle_timeout_termination:
        mapping["replay_buffer_kwargs"] = {"handle_timeout_termination": training.handle_timeout_termination}
    return mapping | dict(training.other)


def _policy(policy: Policy) -> dict[str, Any]:
    mapping = _fields(policy, without=("class_name", "net_arch", "features", "other"))
    mapping["class"] = policy.class_name
    if policy.net_arch is not None:
        mapping["net_arch"] = _net_arch(policy.net_arch)
    if policy.features is not None:
        written = (
            policy.features if isinstance(policy.features, str) else [write_layer(item) for item in policy.features]
        )
        mapping["features"] = written
    return mapping | dict(policy.other)


def _buffer(buffer: Buffer) -> dict[str, Any] | str | None:
    """Return a word where the word says it all, and nothing for the framework's own."""
    options = _changed(buffer, Buffer(kind=buffer.kind))
    if options:
        return {"kind": buffer.kind, **options}
    return buffer.kind if buffer.is_lean else None


def _net_arch(arch: NetArch) -> list[int] | dict[str, list[int]]:
    if arch.policy == arch.value:
        return list(arch.policy)
    return {"pi": list(arch.policy), "vf": list(arch.value)}


def _budget(budget: Budget) -> dict[str, Any]:
    mapping = {"ram": budget.ram_bytes, "vram": budget.vram_bytes, "cores": budget.cores}
    return {key: value for key, value in mapping.items() if value is not None}


def _processes(processes: Processes) -> dict[str, Any]:
    names = {
        "floor_bytes": "floor",
        "worker_bytes": "worker",
        "env_bytes": "env",
        "thread_stack_bytes": "thread_stack",
    }
    mapping = _changed(processes, Processes())
    return {names.get(key, key): value for key, value in mapping.items()}


def _checkpoint(checkpoint: Checkpoint | None) -> dict[str, Any] | None:
    return None if checkpoint is None else _fields(checkpoint)


def _array(array: NamedArray) -> dict[str, Any]:
    return {key: _plain(value) for key, value in _fields(array).items() if value not in (None, ())}


def _network(network: NamedNetwork) -> dict[str, Any]:
    mapping = _fields(network, without=("layers", "optimizer"))
    mapping["optimizer"] = network.optimizer or "none"
    if network.layers:
        mapping["layers"] = [write_layer(layer) for layer in network.layers]
    return {key: _plain(value) for key, value in mapping.items() if value not in (None, ())}


def _files(files: FileGrowth) -> dict[str, Any]:
    mapping = _fields(files, without=("file_bytes",)) | {"size": files.file_bytes}
    return {key: value for key, value in mapping.items() if value is not None}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _fields(value: Any, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    pairs = ((item.name, getattr(value, item.name)) for item in fields(value) if item.name not in without)
    return {name: _plain(content) for name, content in pairs if content not in (None, ())}


def _changed(value: Any, default: Any) -> dict[str, Any]:
    pairs = ((item.name, getattr(value, item.name)) for item in fields(value))
    return {name: content for name, content in pairs if content != getattr(default, name)}
