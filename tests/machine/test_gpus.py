"""NVML as it may be found: missing, refusing, half broken, whole."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from rlmem.machine.gpus import read_gpus
from rlmem.machine.values import Gpu


class FakeError(Exception):
    """Stands for pynvml.NVMLError."""


class FakeNvml(SimpleNamespace):
    """Two GPUs; a function named in ``broken`` raises, and only GPU 1 is lost where ``lost`` says so."""

    NVMLError = FakeError

    def __init__(self, *, broken: str = "", lost: int | None = None, encode: bool = False) -> None:
        super().__init__(broken=broken, lost=lost, encode=encode, open=0)

    def _call(self, name: str) -> None:
        if name == self.broken:
            raise FakeError(name)

    def _text(self, text: str) -> str | bytes:
        return text.encode() if self.encode else text

    def nvmlInit(self) -> None:
        self._call("nvmlInit")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1
        self._call("nvmlShutdown")

    def nvmlSystemGetDriverVersion(self) -> str | bytes:
        self._call("nvmlSystemGetDriverVersion")
        return self._text("570.1")

    def nvmlDeviceGetCount(self) -> int:
        self._call("nvmlDeviceGetCount")
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index == self.lost:
            raise FakeError("GPU is lost")
        return index

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=1000, free=900 - handle, used=100 + handle)

    def nvmlDeviceGetName(self, handle: int) -> str | bytes:
        return self._text(f"Fake {handle}")


def install(monkeypatch: pytest.MonkeyPatch, fake: FakeNvml | None) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake)


def gpu(index: int) -> Gpu:
    return Gpu(
        index=index,
        name=f"Fake {index}",
        vram_total_bytes=1000,
        vram_free_bytes=900 - index,
        driver="570.1",
    )


def test_without_pynvml_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, None)
    assert read_gpus() == ()


def test_real_nvml_never_raises() -> None:
    assert isinstance(read_gpus(), tuple)


@pytest.mark.parametrize("broken", ["nvmlInit", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount"])
def test_a_refusing_driver_gives_none(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    fake = FakeNvml(broken=broken)
    install(monkeypatch, fake)
    assert read_gpus() == ()
    assert fake.open == 0


@pytest.mark.parametrize("encode", [False, True])
def test_all_are_read_and_nvml_is_shut_down(monkeypatch: pytest.MonkeyPatch, encode: bool) -> None:
    fake = FakeNvml(encode=encode)
    install(monkeypatch, fake)
    assert read_gpus() == (gpu(0), gpu(1))
    assert fake.open == 0


def test_a_lost_gpu_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeNvml(lost=0))
    assert read_gpus() == (gpu(1),)


def test_a_failing_shutdown_is_not_the_callers_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeNvml(broken="nvmlShutdown"))
    assert read_gpus() == (gpu(0), gpu(1))
