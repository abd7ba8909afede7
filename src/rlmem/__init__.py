"""rlmem: the memory engineer for reinforcement-learning training."""

from rlmem.api import plan
from rlmem.errors import EnvironmentReadError, InputError, MissingExtra, RlmemError, RunFileError, ScriptError
from rlmem.machine import Machine, read_machine
from rlmem.plan.model import Component, Phase, Plan
from rlmem.run import FrameworkRun, GenericRun, Run, load_run
from rlmem.units import format_bytes, parse_bytes

__version__ = "0.1.0"

__all__ = [
    "Component",
    "EnvironmentReadError",
    "FrameworkRun",
    "GenericRun",
    "InputError",
    "Machine",
    "MissingExtra",
    "Phase",
    "Plan",
    "RlmemError",
    "Run",
    "RunFileError",
    "ScriptError",
    "format_bytes",
    "load_run",
    "parse_bytes",
    "plan",
    "read_machine",
]
