"""Spaces as a run file writes them.

``{shape: [84, 84, 4], dtype: uint8}`` is a Box, ``{discrete: 6}``, ``{multi_discrete: [3, 5]}``,
``{multi_binary: 8}``, ``{dict: {image: …, speed: …}}`` and ``{tuple: […, …]}`` are the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from rlmem.run.arrays import ITEM_BYTES
from rlmem.run.document import Node, as_node
from rlmem.run.section import Section
from rlmem.run.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from rlmem.units import MAX_BYTES

_KINDS: Final = ("shape", "discrete", "multi_discrete", "multi_binary", "dict", "tuple")


def read_space(parent: Section, key: str) -> Space | None:
    node = parent.node(key)
    return None if node is None else _read(parent.inner(node, key))


def _read(section: Section) -> Space:
    kinds = [name for name in _KINDS if name in section]
    if len(kinds) != 1:
        raise section.error(
            f"`{section.name}` must have exactly one of {', '.join(_KINDS)}, but has {', '.join(kinds) or 'none'}"
        )
    space = _READERS[kinds[0]](section)
    section.finish()
    return space


def _read_box(section: Section) -> Box:
    shape = read_shape(section, "shape")
    dtype = section.choice("dtype", ITEM_BYTES) or "float32"
    low, high = _bound(section, "low"), _bound(section, "high")
    if low is not None and high is not None and low > high:
        raise section.error(f"low ≤ high must hold, but got low={low}, high={high}")
    return Box(shape=shape, dtype=dtype, low=low, high=high)


def _bound(section: Section, key: str) -> float | None:
    """Return a bound; an infinite one is none."""
    bound = section.number(key)
    return None if bound is None or math.isinf(bound) else bound


def _read_discrete(section: Section) -> Discrete:
    return Discrete(n=section.as_integer(section.required("discrete"), "discrete"))


def _read_multi_discrete(section: Section) -> MultiDiscrete:
    nvec = read_shape(section, "multi_discrete")
    if not nvec:
        raise section.error(f"`{section.name}.multi_discrete` must list at least one number of choices")
    return MultiDiscrete(nvec=nvec)


def _read_multi_binary(section: Section) -> MultiBinary:
    return MultiBinary(shape=read_shape(section, "multi_binary"))


def _read_dict(section: Section) -> Dict:
    inner = section.inner(section.required("dict"), "dict")
    if not inner.keys:
        raise section.error(f"`{inner.name}` must have at least one space")
    items = tuple((key, _read(inner.inner(node, key))) for key, node in inner.rest())
    return Dict(items=items)


def _read_tuple(section: Section) -> Tuple:
    nodes = section.items("tuple")
    if not nodes:
        raise section.error(f"`{section.name}.tuple` must have at least one space")
    return Tuple(items=tuple(_read(section.inner(node, f"tuple[{index}]")) for index, node in enumerate(nodes)))


_READERS: Final[dict[str, Callable[[Section], Space]]] = {
    "shape": _read_box,
    "discrete": _read_discrete,
    "multi_discrete": _read_multi_discrete,
    "multi_binary": _read_multi_binary,
    "dict": _read_dict,
    "tuple": _read_tuple,
}


def read_shape(section: Section, key: str) -> tuple[int, ...]:
    """Return a list of sizes, or one size as a list of one, whose product a machine could hold."""
    nodes = section.items(key)
    shape = tuple(section.as_integer(node, key) for node in nodes)
    if math.prod(shape) > MAX_BYTES // 16:
        raise section.error(f"`{section.name}.{key}` has more elements than any memory could hold", _first(nodes))
    return shape


def _first(nodes: tuple[Node, ...]) -> Node | None:
    return nodes[0] if nodes else None


def space_from_mapping(mapping: dict[str, Any]) -> Space:
    """Return the space that `write_space` wrote."""
    return _read(Section(as_node(mapping), name="space", file="space"))


def write_space(space: Space) -> dict[str, Any]:
    """Return the space as a run file writes it."""
    match space:
        case Box():
            bounds = {name: value for name, value in (("low", space.low), ("high", space.high)) if value is not None}
            return {"shape": list(space.shape), "dtype": space.dtype} | bounds
        case Discrete(n=n):
            return {"discrete": n}
        case MultiDiscrete(nvec=nvec):
            return {"multi_discrete": list(nvec)}
        case MultiBinary(shape=shape):
            return {"multi_binary": list(shape)}
        case Dict(items=items):
            return {"dict": {key: write_space(item) for key, item in items}}
        case Tuple():
            return {"tuple": [write_space(item) for item in space.items]}
