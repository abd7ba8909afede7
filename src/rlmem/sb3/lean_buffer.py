"""What all lean buffers share: columns in the place of observation arrays, and a limit to the memory they take."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import BaseBuffer
from stable_baselines3.common.preprocessing import get_obs_shape

from rlmem.errors import LeanBufferError, MemoryLimitReached
from rlmem.lean import Column
from rlmem.lean.kernels import COMPILED, Array
from rlmem.sb3.column_view import ColumnAccess, ColumnView
from rlmem.units import format_bytes, parse_bytes, plural

_MOST_UNCHECKED_ADDS: Final = 64
_UNCHECKED_SHARE: Final = 64
"""Between two looks at the limit come at most so many rows, and raw no more than this fraction of it."""

_Class = TypeVar("_Class", bound=type)


@cache
def _say_that_it_is_slow() -> None:
    warnings.warn(
        "rlmem's compiled kernels are missing: lean buffers work, but many times slower. They are built where rlmem is "
        "installed with a C compiler at hand",
        RuntimeWarning,
        stacklevel=4,
    )


class LeanBuffer:
    """Goes in front of a stock buffer class, whose code then reads and writes columns in the place of arrays."""

    observation_space: Any
    obs_shape: Any
    buffer_size: int
    n_envs: int
    pos: int
    full: bool
    _dict_class: type | None = None

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return a buffer of the class for Dict spaces where there is one and the space is a Dict."""
        space = args[1] if len(args) > 1 else kwargs.get("observation_space")
        other = cls.__dict__.get("_dict_class")
        if other is not None and isinstance(space, spaces.Dict):
            return other(*args, **kwargs)
        return super().__new__(cls)

    def _take_options(self, *, compact: bool, memory_limit: int | str | None, lossy: str | None) -> None:
        if not COMPILED:
            _say_that_it_is_slow()
        self.compact, self.lossy = compact, lossy
        self.memory_limit = None if memory_limit is None else parse_bytes(memory_limit)
        self._accesses: dict[str, ColumnAccess] = {}
        self._adds = 0

    @property
    def columns(self) -> dict[str, Column]:
        """The columns by name: ``observations``, or ``observations/KEY`` for each key of a Dict space."""
        return {name: access.column for name, access in self._accesses.items()}

    @property
    def nbytes(self) -> int:
        """What the columns hold and what the arrays of everything else take."""
        return self._columns_bytes() + self._arrays_bytes()

    def _columns_bytes(self) -> int:
        return sum(access.column.nbytes for access in self._accesses.values())

    def _arrays_bytes(self) -> int:
        return sum(int(value.nbytes) for value in vars(self).values() if isinstance(value, np.ndarray))

    # --- what stock code calls -------------------------------------------------------------------------------------

    @staticmethod
    def swap_and_flatten(arr: Any) -> Any:
        """Merge steps and environments as the stock method does; a column is not copied for it."""
        return arr.flattened() if isinstance(arr, ColumnView) else BaseBuffer.swap_and_flatten(arr)

    def to_torch(self, array: Array, copy: bool = True) -> Any:
        """Return a tensor of the array; a minibatch that was read for this is not copied once more.

        float32 is: it goes into matrix products as it is, and their last bits depend on how it lies in memory.
        """
        fresh = array.dtype != np.float32 and any(access.gave(array) for access in self._accesses.values())
        return super().to_torch(array, copy=copy and not fresh)  # type: ignore[misc]

    # --- columns ---------------------------------------------------------------------------------------------------

    def _open_columns(self, *, follows: bool) -> None:
        """Begin with empty columns; those of an earlier rollout know the observations' layout."""
        self._adds = 0
        for name, space, shape in self._parts():
            self._open(name, shape=shape, dtype=space.dtype, follows=follows)
        self.observations = self._views(following=False)
        if follows:
            self.next_observations = self._views(following=True)

    def _open(self, name: str, *, shape: tuple[int, ...], dtype: Any, follows: bool, unwritten: float = 0) -> None:
        rows, n_envs = self.buffer_size, self.n_envs
        access = self._accesses.get(name)
        if access is not None and (access.column.rows, access.column.n_envs) == (rows, n_envs):
            access.clear()
            return
        column = Column(
            rows=rows,
            n_envs=n_envs,
            shape=shape,
            dtype=dtype,
            follows=follows,
            compact=self.compact,
            lossy=self.lossy,
        )
        self._accesses[name] = ColumnAccess(column, unwritten=unwritten)

    def _parts(self) -> list[tuple[str, Any, tuple[int, ...]]]:
        if not isinstance(self.observation_space, spaces.Dict):
            return [("observations", self.observation_space, self.obs_shape)]
        return [(_part(key), self.observation_space[key], shape) for key, shape in self.obs_shape.items()]

    def _views(self, *, following: bool) -> Any:
        if not isinstance(self.observation_space, spaces.Dict):
            return ColumnView(self._accesses["observations"], following=following)
        return {key: ColumnView(self._accesses[_part(key)], following=following) for key in self.obs_shape}

    # --- the limit -------------------------------------------------------------------------------------------------

    def _check_room(self) -> None:
        """Raise MemoryLimitReached if the limit leaves no room for any observations."""
        if self.memory_limit is not None and self.nbytes > self.memory_limit:
            raise MemoryLimitReached(
                f"{type(self).__name__}: memory_limit must leave room for the {format_bytes(self.nbytes)} that "
                f"actions, rewards and indices of {self.buffer_size:,} rows take, but got "
                f"{format_bytes(self.memory_limit)}: raise it, or lower the number of rows"
            )

    def _note_add(self) -> None:
        """Look every few rows whether the limit is kept."""
        self._adds += 1
        if self.memory_limit is not None and self._adds % self._adds_between_looks(self.memory_limit) == 0:
            self._keep_to(self.memory_limit)

    def _adds_between_looks(self, limit: int) -> int:
        raw = sum(math.prod(shape) * space.dtype.itemsize for _, space, shape in self._parts()) * self.n_envs
        return max(1, min(_MOST_UNCHECKED_ADDS, limit // _UNCHECKED_SHARE // max(raw, 1)))

    def _keep_to(self, limit: int) -> None:
        """Raise MemoryLimitReached if the buffer holds more than the limit."""
        held = self.nbytes
        if held > limit:
            raise MemoryLimitReached(
                f"{type(self).__name__}: memory_limit must hold {plural(self.buffer_size, 'row')} of "
                f"{plural(self.n_envs, 'environment')}, but {plural(self._rows_held(), 'row')} and the other arrays "
                f"take {format_bytes(held)} of {format_bytes(limit)}: {self._ways_out()}"
            )

    def _rows_held(self) -> int:
        return self.buffer_size if self.full else self.pos

    def _ways_out(self) -> str:
        return "raise it, lower the number of rows, or hold them with compact=True"


def for_dict_spaces_of(front: Any) -> Callable[[_Class], _Class]:
    """Make a class the one that ``front`` gives for Dict spaces: `isinstance` holds for both."""

    def enter(cls: _Class) -> _Class:
        front._dict_class = cls
        front.register(cls)
        return cls

    return enter


def without_observations(space: Any) -> Any:
    """Return a space of the same kind whose observations are empty: stock code then allocates nothing for them."""
    return spaces.Dict({}) if isinstance(space, spaces.Dict) else spaces.Box(0, 1, shape=(0,))


def check_space(buffer: Any, space: Any, dict_class: type) -> None:
    """Raise unless a Dict space meets a class for Dict spaces, and another space one for the others."""
    if isinstance(space, spaces.Dict) == isinstance(buffer, dict_class):
        return
    must = "a Dict space" if isinstance(buffer, dict_class) else "no Dict space"
    raise LeanBufferError(f"{type(buffer).__name__} must be used with {must}, but got {space}")


def shape_of(space: Any) -> Any:
    """Return the shape of a space's observations as stock buffers hold them."""
    return get_obs_shape(space)


def _part(key: str) -> str:
    return f"observations/{key}"
