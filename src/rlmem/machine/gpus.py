"""The GPUs as the driver counts them, through NVML, which needs no CUDA context and so takes no VRAM."""

from __future__ import annotations

import contextlib
from types import ModuleType
from typing import Any

from rlmem.machine.values import Gpu


def read_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs this process can see, or () without pynvml, a driver or the permission to ask it."""
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        return _read_all(pynvml)
    finally:
        # NVML counts its users, so this does not take it from a caller who holds it too.
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _read_all(nvml: ModuleType) -> tuple[Gpu, ...]:
    try:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        count = int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError:
        return ()
    gpus = (_read_one(nvml, index, driver) for index in range(count))
    return tuple(gpu for gpu in gpus if gpu is not None)


def _read_one(nvml: ModuleType, index: int, driver: str) -> Gpu | None:
    """Return the GPU at ``index``, or None for one that is lost, forbidden or without memory of its own."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        name = _text(nvml.nvmlDeviceGetName(handle))
    except nvml.NVMLError:
        return None
    return Gpu(
        index=index,
        name=name,
        vram_total_bytes=int(memory.total),
        vram_free_bytes=int(memory.free),
        driver=driver,
    )


def _text(value: Any) -> str:
    # nvidia-ml-py gave bytes before 12.535 and gives str since.
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
