"""The sections that every kind of run has: device, machine, processes."""

from __future__ import annotations

import re
from typing import Final

from rlmem.run.model import Budget, Processes
from rlmem.run.section import Section

_DEVICE: Final = re.compile(r"cpu|cuda(:\d{1,3})?")


def read_device(root: Section) -> str:
    device = root.text("device") or "cpu"
    if not _DEVICE.fullmatch(device):
        raise root.error(f"`device` must be cpu, cuda or cuda:0, but got {device!r}", root.node("device"))
    return device


def read_budget(root: Section) -> Budget:
    section = root.section("machine")
    if section is None:
        return Budget()
    budget = Budget(
        ram_bytes=section.size("ram"),
        vram_bytes=section.size("vram"),
        cores=section.integer("cores", high=10**5),
    )
    section.finish()
    return budget


def read_processes(root: Section) -> Processes:
    section = root.section("processes")
    if section is None:
        return Processes()
    stack = section.size("thread_stack")
    processes = Processes(
        floor_bytes=section.size("floor"),
        worker_bytes=section.size("worker"),
        env_bytes=section.size("env"),
        workers=section.integer("workers", low=0, high=10**6) or 0,
        start_method=section.choice("start_method", ("fork", "forkserver", "spawn")),
        threads=section.integer("threads", high=10**6),
        thread_stack_bytes=Processes().thread_stack_bytes if stack is None else stack,
    )
    section.finish()
    return processes
