"""Generic runs as a run file writes them: named arrays, networks, sizes, phases, growth."""

from __future__ import annotations

from rlmem.run.arrays import ITEM_BYTES
from rlmem.run.layer_reader import read_layers
from rlmem.run.model import Dim, FileGrowth, GenericRun, Growth, NamedArray, NamedNetwork
from rlmem.run.section import Section, nearest
from rlmem.run.shared_sections import read_budget, read_device, read_processes

PLACES = ("ram", "vram", "virtual", "disk")
OPTIMIZERS = ("adam", "adamw", "rmsprop", "sgd", "sgd+momentum", "none")
DEFAULT_PHASES = ("startup", "collect", "update")


def read_generic(root: Section, name: str) -> GenericRun:
    sizes = _sizes(root.section("sizes"))
    phases = tuple(root.as_text(node, "phases") for node in root.items("phases")) or DEFAULT_PHASES
    if len(set(phases)) != len(phases):
        raise root.error("`phases` must name each phase once", root.node("phases"))
    names = tuple(name for name, _ in sizes)
    run = GenericRun(
        name=name,
        algorithm=root.text("algorithm") or "unnamed",
        sizes=sizes,
        phases=phases,
        arrays=root.list_of("arrays", lambda section: _array(section, names, phases)),
        networks=root.list_of("networks", lambda section: _network(section, names, phases)),
        growth=_growth(root.section("growth"), names),
        capacity=root.choice("capacity", names) if "capacity" in root else None,
        files=_files(root.section("files")),
        notes=tuple(root.as_text(node, "notes") for node in root.items("notes")),
        device=read_device(root),
        budget=read_budget(root),
        processes=read_processes(root),
    )
    paths = [array.path for array in run.arrays]
    if len(set(paths)) != len(paths):
        raise root.error("`arrays` must give each array a path of its own", root.node("arrays"))
    if len({network.name for network in run.networks}) != len(run.networks):
        raise root.error("`networks` must give each network a name of its own", root.node("networks"))
    return run


def _sizes(section: Section | None) -> tuple[tuple[str, int], ...]:
    if section is None:
        return ()
    return tuple((key, section.as_integer(node, key)) for key, node in section.rest())


def _array(section: Section, names: tuple[str, ...], phases: tuple[str, ...]) -> NamedArray:
    return NamedArray(
        path=section.as_text(section.required("path"), "path"),
        shape=_dims(section, "shape", names),
        dtype=section.choice("dtype", ITEM_BYTES) or "float32",
        count=_dims(section, "count", names),
        every=_dims(section, "every", names),
        where=section.choice("where", PLACES) or "ram",
        phases=_phases(section, "phases", phases),
    )


def _network(section: Section, names: tuple[str, ...], phases: tuple[str, ...]) -> NamedNetwork:
    optimizer = section.choice("optimizer", OPTIMIZERS) or "adam"
    network = NamedNetwork(
        name=section.as_text(section.required("name"), "name"),
        input=_dims(section, "input", names),
        layers=read_layers(section, "layers"),
        parameters=section.integer("parameters"),
        activations_per_row=section.integer("activations_per_row", low=0),
        optimizer=None if optimizer == "none" else optimizer,
        targets=section.integer("targets", low=0, high=1000) or 0,
        copies=_dims(section, "copies", names),
        active=_dims(section, "active", names),
        rows=_dims(section, "rows", names),
        graph_phases=_phases(section, "graph_phases", phases) or ("update",),
    )
    if bool(network.layers) == (network.parameters is not None):
        raise section.error(f"`{section.name}` must have either `layers` or `parameters`")
    if network.layers and not network.input:
        raise section.error(f"`{section.name}` must have `input`, the shape of one row that the layers get")
    return network


def _dims(section: Section, key: str, names: tuple[str, ...]) -> tuple[Dim, ...]:
    dims: list[Dim] = []
    for node in section.items(key):
        if isinstance(node.value, str):
            if node.value not in names:
                guess = nearest(node.value, names)
                raise section.error(
                    f"`{section.name}.{key}` names `{node.value}`, which `sizes` does not give{guess}", node
                )
            dims.append(node.value)
        else:
            dims.append(section.as_integer(node, key))
    return tuple(dims)


def _phases(section: Section, key: str, phases: tuple[str, ...]) -> tuple[str, ...] | None:
    nodes = section.items(key)
    return tuple(section.as_choice(node, key, phases) for node in nodes) or None


def _growth(section: Section | None, names: tuple[str, ...]) -> Growth | None:
    if section is None:
        return None
    growth = Growth(
        size=section.as_choice(section.required("size"), "size", names),
        by=section.as_integer(section.required("by"), "by"),
        per=section.text("per") or "step",
        total=section.integer("total"),
    )
    section.finish()
    return growth


def _files(section: Section | None) -> FileGrowth | None:
    if section is None:
        return None
    size = section.size("size")
    if size is None:
        raise section.error("`files` must have `size`, the bytes of one file")
    files = FileGrowth(
        per=section.text("per") or "checkpoint",
        files=section.integer("files") or 1,
        file_bytes=size,
        total=section.integer("total"),
        keep=section.integer("keep"),
    )
    section.finish()
    return files
