"""Records the birth and death of every storage while training code runs on fake tensors.

Fake tensors have shapes and dtypes and no memory, so a step of any size can be run anywhere. Three things
stand between them and ordinary training code, and each is answered here: reads of values (``item()``),
``Tensor.numpy()``, and moves of modules between devices.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from rlmem.plan import trace
from rlmem.plan.shadow_heap import Block, ShadowHeap
from rlmem.plan.trace import Allocation

_READS_A_VALUE: Final = "aten::_local_scalar_dense"
_COMPARES: Final = "aten::equal"
_CONVOLUTIONS: Final = ("aten::convolution", "aten::convolution_backward")


@dataclass(slots=True)
class _Record:
    bytes: int
    born: int
    kind: str
    op: str
    module: str
    block: Block | None = None
    died: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """One call of a convolution, so that what its library takes beside its tensors can be metered."""

    backward: bool
    input_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int
    needs_input_gradient: bool
    output_elements: int

    @property
    def rows(self) -> int:
        return self.input_shape[0]

    @property
    def for_any_rows(self) -> Convolution:
        """The same convolution whatever the rows: what is metered once serves all of them."""
        return replace(self, input_shape=(0, *self.input_shape[1:]), output_elements=0)


Scratch: TypeAlias = Callable[[Convolution], tuple[int, ...]]


def _no_scratch(_convolution: Convolution) -> tuple[int, ...]:
    return ()


@dataclass
class Recording:
    """What was recorded so far.

    ``scratch`` says what a convolution takes beside its tensors, one block after the other: cuDNN asks for it when
    the outputs are there (``outputs_first``), oneDNN before. With a ``heap``, every block is requested from the
    process's real allocator, and its largest extent is kept.
    """

    scratch: Scratch = _no_scratch
    outputs_first: bool = False
    heap: ShadowHeap | None = None
    records: list[_Record] = field(default_factory=list)
    convolutions: list[Convolution] = field(default_factory=list)
    clock: int = 0
    heap_peak_bytes: int = 0
    heap_peak_event: int = 0
    heap_end_bytes: int = 0
    alive_bytes: int = 0
    allocations: tuple[Allocation, ...] = ()
    _alive: dict[int, _Record] = field(default_factory=dict)

    def note(self, tensor: torch.Tensor, *, kind: str, op: str, module: str = "") -> None:
        """Take down the tensor's storage, unless it is known already."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._alive or storage.nbytes() == 0:
            return
        record = self._born(storage.nbytes(), kind=kind, op=op, module=module)
        self._alive[key] = record
        weakref.finalize(storage, self._died, key, record).atexit = False

    def _born(self, size: int, *, kind: str, op: str, module: str) -> _Record:
        record = _Record(bytes=size, born=self.clock, kind=kind, op=op, module=module)
        self.clock += 1
        self.records.append(record)
        self.alive_bytes += size
        if self.heap is not None:
            record.block = self.heap.allocate(size)
            level = self._heap_level(self.heap)
            if level > self.heap_peak_bytes:
                self.heap_peak_bytes, self.heap_peak_event = level, record.born
        return record

    def _heap_level(self, heap: ShadowHeap) -> int:
        """Return the heap's extent. One that was used before has holes: filling them takes memory without growth."""
        return max(heap.level(), self.alive_bytes)

    def _died(self, key: int, record: _Record) -> None:
        record.died = self.clock
        self.clock += 1
        self.alive_bytes -= record.bytes
        if self._alive.get(key) is record:
            del self._alive[key]
        if self.heap is not None and record.block is not None:
            self.heap.free(record.block)

    @contextmanager
    def convolving(self, convolution: Convolution | None) -> Iterator[None]:
        """Hold the scratch of a convolution while it runs and its outputs appear, or from then on."""
        if convolution is None:
            yield
            return
        self.convolutions.append(convolution)
        if self.outputs_first:
            yield
        held = None
        for size in filter(None, self.scratch(convolution)):
            if held is not None:
                self._died(0, held)
            held = self._born(size, kind=trace.SCRATCH, op="convolution", module="workspace")
        if not self.outputs_first:
            yield
        if held is not None:
            self._died(0, held)

    def origin(self, tensor: torch.Tensor) -> str:
        """Return the operation that made the tensor's storage."""
        record = self._alive.get(tensor.untyped_storage()._cdata)
        return record.op if record else ""

    def finish(self) -> None:
        """Take down what there is while the trained model is still alive, and give the heap's blocks back."""
        self.allocations = tuple(
            Allocation(bytes=item.bytes, born=item.born, died=item.died, kind=item.kind, op=item.op, module=item.module)
            for item in self.records
        )
        if self.heap is None:
            return
        self.heap_end_bytes = self._heap_level(self.heap)
        for record in self.records:
            if record.died is None and record.block is not None:
                self.heap.free(record.block)
        self.heap = None

    def name(self, tensor: torch.Tensor, kind: str) -> None:
        """Give the tensor's storage its kind, now that it is known what it is."""
        record = self._alive.get(tensor.untyped_storage()._cdata)
        if record is not None:
            record.kind = kind


class _Recorder(TorchDispatchMode):
    """Notes every storage that an operation makes, and answers reads of values with a stand-in."""

    def __init__(self, recording: Recording, modules: list[str], denied: frozenset[str]) -> None:
        super().__init__()
        self._recording = recording
        self._modules = modules
        self._denied = denied

    def _stand_in(self, tensor: torch.Tensor) -> bool | int | float:
        """Return a harmless value: true (what is asked is mostly whether values are valid), one, or a half."""
        if tensor.dtype == torch.bool:
            return self._recording.origin(tensor) not in self._denied
        return 0.5 if tensor.dtype.is_floating_point else 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        if name == _READS_A_VALUE:
            return self._stand_in(args[0])
        if name == _COMPARES:
            return True
        with self._recording.convolving(_convolution(name, args) if name in _CONVOLUTIONS else None):
            output = _unmasked(name, args)
            if output is None:
                output = func(*args, **(kwargs or {}))
            self._note(output, name)
        return output

    def _note(self, output: Any, op: str) -> None:
        backward = torch._C._current_graph_task_id() != -1
        kind = trace.TEMPORARIES if backward or not torch.is_grad_enabled() else trace.ACTIVATIONS
        for value in tree_iter(output):
            if isinstance(value, torch.Tensor):
                self._recording.note(value, kind=kind, op=op, module=self._modules[-1])


def _unmasked(name: str, args: Any) -> torch.Tensor | None:
    """Return what a selection by mask gives: a mask whose values are not known lets everything through."""
    if name == "aten::nonzero":
        return torch.empty((args[0].numel(), args[0].dim()), dtype=torch.int64)
    if name == "aten::masked_select":
        return torch.empty((args[0].numel(),), dtype=args[0].dtype)
    if name == "aten::index" and len(args[1]) == 1 and args[1][0].dtype == torch.bool:
        mask = args[1][0]
        return torch.empty((mask.numel(), *args[0].shape[mask.dim() :]), dtype=args[0].dtype)
    if name == "aten::index_put" and len(args[1]) == 1 and args[1][0].dtype == torch.bool:
        return torch.empty_like(args[0])
    return None


def _convolution(name: str, args: Any) -> Convolution:
    backward = name.endswith("backward")
    if backward:
        _, inputs, weight, _, stride, padding, dilation, transposed, output_padding, groups, mask = args
    else:
        inputs, weight, _, stride, padding, dilation, transposed, output_padding, groups = args
        mask = (False,)
    return Convolution(
        backward=backward,
        input_shape=tuple(inputs.shape),
        weight_shape=tuple(weight.shape),
        stride=tuple(stride),
        padding=tuple(padding),
        dilation=tuple(dilation),
        transposed=bool(transposed),
        output_padding=tuple(output_padding),
        groups=int(groups),
        needs_input_gradient=bool(mask[0]),
        output_elements=_output_elements(args, backward=backward),
    )


def _output_elements(args: Any, *, backward: bool) -> int:
    """Return how many elements the convolution's output has: that of its gradient, where it runs backwards."""
    if backward:
        return int(args[0].numel())
    inputs, weight, _, stride, padding, dilation, transposed, output_padding, groups = args
    sizes = zip(inputs.shape[2:], weight.shape[2:], stride, padding, dilation, output_padding, strict=True)
    spatial = [_axis(*axis, transposed=transposed) for axis in sizes]
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    return math.prod((inputs.shape[0], channels, *spatial))


def _axis(size: int, kernel: int, stride: int, padding: int, dilation: int, extra: int, *, transposed: bool) -> int:
    if transposed:
        return (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + extra + 1
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


class _AnswerNumpy(TorchFunctionMode):
    """Answers ``Tensor.numpy()``, which a fake tensor cannot, with zeros that take no memory."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.numpy:
            return np.broadcast_to(np.zeros((), dtype=np.float32), tuple(args[0].shape))
        return func(*args, **(kwargs or {}))


def fake_mode() -> FakeTensorMode:
    """Return a mode in which tensors have no memory; real ones that meet it are taken as fake."""
    return FakeTensorMode(allow_non_fake_inputs=True)


@contextmanager
def recording(
    mode: FakeTensorMode,
    *,
    denied: frozenset[str] = frozenset(),
    scratch: Scratch = _no_scratch,
    outputs_first: bool = False,
    heap: ShadowHeap | None = None,
) -> Iterator[Recording]:
    """Run the body on fake tensors and record what it allocates.

    Questions that are asked of values are answered with yes, but for the operations in ``denied``.
    """
    result, modules = Recording(scratch=scratch, outputs_first=outputs_first, heap=heap), ["training"]
    with ExitStack() as stack:
        stack.enter_context(mode)
        stack.enter_context(_Recorder(result, modules, denied))
        stack.enter_context(_AnswerNumpy())
        stack.enter_context(modules_stay_where_they_are())
        stack.enter_context(_module_names(modules))
        yield result


@contextmanager
def modules_stay_where_they_are() -> Iterator[None]:
    """Make ``Module.to`` do nothing: fake parameters cannot be moved by copying."""
    original = torch.nn.Module.to

    def stay(self: torch.nn.Module, *_args: Any, **_kwargs: Any) -> torch.nn.Module:
        return self

    torch.nn.Module.to = stay
    try:
        yield
    finally:
        torch.nn.Module.to = original


@contextmanager
def _module_names(modules: list[str]) -> Iterator[None]:
    """Keep the class of the module whose forward pass is running on top of ``modules``."""

    def enter(module: torch.nn.Module, _inputs: Any) -> None:
        modules.append(type(module).__name__)

    def leave(_module: torch.nn.Module, _inputs: Any, _output: Any) -> None:
        modules.pop()

    before = torch.nn.modules.module.register_module_forward_pre_hook(enter)
    after = torch.nn.modules.module.register_module_forward_hook(leave, always_call=True)
    try:
        yield
    finally:
        before.remove()
        after.remove()
