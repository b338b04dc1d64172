"""A GPU that is not there: torch.cuda's functions, streams and events, and devices by name."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from nadi.pytorch.fake.fake_mode import Recorder

torch: Any = importlib.import_module("torch")
_overrides: Any = importlib.import_module("torch.overrides")

_RELABELED = ("cuda", "hpu", "xpu", "npu")
_MEMORY = 80 * 10**9


@contextlib.contextmanager
def patched(changes: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Replace attributes (object, name, value), and put the old ones back at the end."""
    missing = object()
    before = [(where, name, vars(where).get(name, missing)) for where, name, _ in changes]
    try:
        for where, name, value in changes:
            setattr(where, name, value)
        yield
    finally:
        for where, name, value in reversed(before):
            if value is missing:
                delattr(where, name)
            else:
                setattr(where, name, value)


@contextlib.contextmanager
def pretended_devices(recorder: Recorder, name: str) -> Iterator[None]:
    """Let a program find a GPU, whose tensors are fake and whose streams are recorded."""
    changes = [
        *_stream_changes(recorder), *_cuda_changes(name), *_autocast_changes(),
        *_storage_changes(recorder), *_swap_changes(), *_foreach_changes(),
    ]  # fmt: skip
    with patched(changes), _relabelling():
        yield


def _plain(device: Any) -> Any:
    """Return the device that stands for one: the CPU for a GPU."""
    if isinstance(device, int) and not isinstance(device, bool):
        return "cpu"
    if isinstance(device, str):
        return "cpu" if device.partition(":")[0] in _RELABELED else device
    if isinstance(device, torch.device) and device.type in _RELABELED:
        return torch.device("cpu")
    return device


def _relabelling() -> Any:
    """Make the mode that replaces devices in calls of torch's functions."""
    tensor = torch.Tensor
    is_cuda = getattr(tensor.is_cuda, "__get__", None)

    class Relabelling(_overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            options = kwargs or {}
            if func is is_cuda:
                return args[0].device.type != "meta"
            if func is tensor.cuda:
                return args[0]
            if func is tensor.pin_memory:
                return args[0]
            if func is tensor.record_stream:
                return None
            if "device" in options:
                options = {**options, "device": _plain(options["device"])}
            if options.get("pin_memory"):
                options = {**options, "pin_memory": False}
            if func is tensor.to:
                args = (args[0], *(
                    _plain(one) if not isinstance(one, (bool, int)) or place == 0 else one
                    for place, one in enumerate(args[1:])
                ))  # fmt: skip
            return func(*args, **options)

    return Relabelling()


class _Stream:
    """A stream of the pretended device."""

    recorder: Recorder  # set when a recording begins
    default: _Stream

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.number = self.recorder.new_stream()
        self.device = torch.device("cpu")
        self.priority = priority

    def wait_stream(self, other: Any) -> None:
        """Let what comes wait for what the other stream has now."""
        number = getattr(other, "number", 0)
        self.recorder.log.wait(self.number, self.recorder.log.last_of(number))

    def wait_event(self, event: Any) -> None:
        """Let what comes wait for an event."""
        event.wait(self)

    def record_event(self, event: Any = None) -> Any:
        """Record an event."""
        found = event or _Event()
        found.record(self)
        return found

    def synchronize(self) -> None:
        """Do nothing: values are not there to wait for."""

    def query(self) -> bool:
        """Return True."""
        return True

    def is_capturing(self) -> bool:
        """Return False: operations run, and are not put into a graph."""
        return False

    def __enter__(self) -> _Stream:
        self._context = _StreamContext(self)
        self._context.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._context.__exit__(*error)


class _Event:
    """An event of the pretended device: the last operation of a stream when it was recorded."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.row = -1
        self.rows: Any = None

    def record(self, stream: Any = None) -> _Event:
        """Remember what the stream has now."""
        recorder = _Stream.recorder
        number = recorder.stream if stream is None else getattr(stream, "number", 0)
        self.row, self.rows = recorder.log.last_of(number), recorder.log.operations
        return self

    def wait(self, stream: Any = None) -> None:
        """Let a stream wait for it."""
        recorder = _Stream.recorder
        number = recorder.stream if stream is None else getattr(stream, "number", 0)
        if self.rows is recorder.log.operations:  # and not of an earlier step
            recorder.log.wait(number, self.row)

    def query(self) -> bool:
        """Return True."""
        return True

    def synchronize(self) -> None:
        """Do nothing."""

    def elapsed_time(self, _: Any) -> float:
        """Return 1 ms: times are not known."""
        return 1.0


class _StreamContext:
    """Makes a stream the current one."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        recorder = _Stream.recorder
        self.before = recorder.stream
        if self.stream is not None:
            recorder.stream = getattr(self.stream, "number", 0)
            _streams[recorder.stream] = self.stream

    def __exit__(self, *_: object) -> None:
        _Stream.recorder.stream = self.before


_streams: dict[int, Any] = {}


def _current_stream(device: Any = None) -> Any:
    return _streams[_Stream.recorder.stream]


def _set_stream(stream: Any) -> None:
    _StreamContext(stream).__enter__()


def _stream_changes(recorder: Recorder) -> list[tuple[Any, str, Any]]:
    _Stream.recorder = recorder
    default = _Stream.__new__(_Stream)
    default.number, default.device, default.priority = 0, torch.device("cpu"), 0
    _streams.clear()
    _streams[0] = default
    found: list[tuple[Any, str, Any]] = []
    for module in (torch.cpu, torch.cuda):
        found += [
            (module, "Stream", _Stream), (module, "Event", _Event),
            (module, "stream", _StreamContext), (module, "StreamContext", _StreamContext),
            (module, "current_stream", _current_stream), (module, "set_stream", _set_stream),
            (module, "default_stream", lambda device=None: default),
        ]  # fmt: skip
    found += [(torch, "Stream", _Stream), (torch, "Event", _Event)]
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        found.append((accelerator, "current_stream", _current_stream))
    return found


def _cuda_changes(name: str) -> list[tuple[Any, str, Any]]:
    cuda = torch.cuda

    def of(value: Any) -> Callable[..., Any]:
        return lambda *_, **__: value

    num_local = int(os.environ.get("LOCAL_WORLD_SIZE", "8"))
    properties = SimpleNamespace(
        name=name, total_memory=_MEMORY, major=9, minor=0, multi_processor_count=132,
    )  # fmt: skip
    values: dict[str, Any] = {
        "is_available": of(True), "is_initialized": of(True), "init": of(None),
        "_lazy_init": of(None), "device_count": of(num_local), "set_device": of(None),
        "current_device": of(int(os.environ.get("LOCAL_RANK", "0"))), "synchronize": of(None),
        "empty_cache": of(None), "get_device_name": of(name),
        "get_device_capability": of((9, 0)), "get_device_properties": of(properties),
        "is_bf16_supported": of(True), "manual_seed": of(None), "manual_seed_all": of(None),
        "memory_allocated": of(0), "max_memory_allocated": of(0), "memory_reserved": of(0),
        "max_memory_reserved": of(0), "reset_peak_memory_stats": of(None),
        "memory_stats": of({}), "mem_get_info": of((_MEMORY, _MEMORY)), "ipc_collect": of(None),
        "memory_summary": of(""), "set_per_process_memory_fraction": of(None),
        "device": of(contextlib.nullcontext()),
        "get_rng_state": of(torch.zeros(8, dtype=torch.uint8)),
        "set_rng_state": of(None), "reset_max_memory_allocated": of(None),
    }  # fmt: skip
    found = [(cuda, key, value) for key, value in values.items() if hasattr(cuda, key)]
    nvtx = getattr(cuda, "nvtx", None)
    if nvtx is not None:
        found += [(nvtx, key, of(None)) for key in ("range_push", "range_pop", "mark")]
        found.append((nvtx, "range", lambda *_, **__: contextlib.nullcontext()))
    found.append((torch.nn.Module, "cuda", lambda self, device=None: self.to("cpu")))
    return found


def _autocast_changes() -> list[tuple[Any, str, Any]]:
    """Let autocast work as on the CPU, and a GradScaler always step."""
    autocast = torch.amp.autocast_mode.autocast
    begin = autocast.__init__

    def new_begin(self: Any, device_type: str, dtype: Any = None, *rest: Any, **more: Any) -> None:
        if device_type in _RELABELED and dtype is None:
            dtype = torch.float16  # as on a GPU
        begin(self, _plain(device_type), dtype, *rest, **more)

    scaler = torch.amp.grad_scaler.GradScaler

    def step(self: Any, optimizer: Any, _: Any, *args: Any, **kwargs: Any) -> Any:
        return optimizer.step(*args, **kwargs)

    return [(autocast, "__init__", new_begin), (scaler, "_maybe_opt_step", step)]


def _storage_changes(recorder: Recorder) -> list[tuple[Any, str, Any]]:
    """See storages that grow and shrink, as FSDP's do."""
    kind = torch.UntypedStorage
    resize = kind.resize_

    def new_resize(self: Any, size: int) -> Any:
        result = resize(self, size)
        recorder.resized(self)
        return result

    return [(kind, "resize_", new_resize)]


def _swap_changes() -> list[tuple[Any, str, Any]]:
    """Let a module's parameters change their type and device; weak references forbid a swap."""
    fake: Any = importlib.import_module("torch._subclasses.fake_tensor")
    swap = torch.utils.swap_tensors

    def new_swap(one: Any, other: Any) -> None:
        if not isinstance(one, fake.FakeTensor) or not isinstance(other, fake.FakeTensor):
            swap(one, other)
            return
        one.data = other
        one.fake_device = other.fake_device
        one.__dict__.pop("_nadi_number", None)

    return [(torch.utils, "swap_tensors", new_swap)]


def _foreach_changes() -> list[tuple[Any, str, Any]]:
    """Let optimizers choose kernels for lists of tensors where they do so on a GPU."""
    module: Any = importlib.import_module("torch.utils._foreach_utils")
    supported = module._get_foreach_kernels_supported_devices

    def new_supported() -> list[str]:
        return [*supported(), "cpu"]

    fake: Any = importlib.import_module("torch._subclasses.fake_tensor")
    clipping: Any = importlib.import_module("torch.nn.utils.clip_grad")
    own = [one for name, one in list(sys.modules.items()) if name.startswith("torch.optim.")]
    types = [torch.Tensor, torch.nn.Parameter, fake.FakeTensor]

    def all_plain(tensors: Any, device: Any) -> bool:
        return all(one is None or type(one) in types for one in tensors)

    given = {
        "_get_foreach_kernels_supported_devices": new_supported,
        "_foreach_supported_types": types,
        "_has_foreach_support": all_plain,
        "_get_capturable_supported_devices": lambda *_, **__: [*_RELABELED, "cpu"],
    }
    return [
        (where, name, value)
        for where in (module, clipping, *own)
        for name, value in given.items()
        if hasattr(where, name)
    ]
