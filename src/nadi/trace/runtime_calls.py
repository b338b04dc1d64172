"""The calls of the CUDA and HIP runtimes and drivers that synchronize host and device.

:data:`CALLS` declares every kind of call for all runtimes; a new runtime is one more prefix in its
rows. :data:`HTA_CALLS` declares the calls in HTA's rules, which match whole names. Copies are
distinguished by the names that the profiler gives them on the device, as in
``Memcpy DtoH (Device -> Pageable)``.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "CALLS", "COPY_FROM_PAGEABLE", "COPY_ON_DEVICE", "COPY_TO_PAGEABLE", "HTA_CALLS",
    "HTA_EVENT_RECORD", "RuntimeCall", "hta_calls", "pattern",
]  # fmt: skip


class RuntimeCall(NamedTuple):
    """One kind of runtime call.

    Attributes
    ----------
    kind
        Name of the kind in the linking rules.
    runtimes
        The prefixes of the runtimes and drivers that have it: ``cu`` is CUDA's driver.
    name
        Regular expression for the rest of the name after the prefix. A version (``_v2``) or a
        variant (``WithFlags``) may follow, unless the expression ends in ``$``.
    effect
        Effect of the call on the calling thread and on streams.
    """

    kind: str
    runtimes: tuple[str, ...]
    name: str
    effect: str


_ALL = ("cuda", "hip", "cu")
_RUNTIMES = ("cuda", "hip")
CALLS = (
    RuntimeCall("device sync", _RUNTIMES, "DeviceSynchronize", "waits for all work of the device"),
    RuntimeCall("device sync", ("cu", "hip"), "CtxSynchronize", "waits for all work of the device"),
    RuntimeCall("stream sync", _ALL, "StreamSynchronize", "waits for all work of a stream"),
    RuntimeCall("event sync", _ALL, "EventSynchronize", "waits until a recorded event is reached"),
    RuntimeCall("event record", _ALL, "EventRecord", "puts an event after the work of a stream"),
    RuntimeCall("stream wait", _ALL, "StreamWaitEvent", "lets a stream wait for an event"),
    RuntimeCall("event query", _RUNTIMES, "EventQuery$", "asks for an event and goes on"),
    RuntimeCall(
        "capture mode",
        _RUNTIMES,
        "ThreadExchangeStreamCaptureMode$",
        "sets how the thread may call while a stream is captured",
    ),
    RuntimeCall("copy", _RUNTIMES, "Memcpy", "copies; waits for it, unless it is asynchronous"),
    RuntimeCall("blocking copy", _RUNTIMES, "Memcpy$", "copies and waits for it"),
    RuntimeCall("asynchronous copy", _RUNTIMES, "Memcpy.*Async", "copies and goes on"),
)

COPY_TO_PAGEABLE = r"(?i)->\s*pageable"
COPY_FROM_PAGEABLE = r"(?i)pageable\s*->"
COPY_ON_DEVICE = r"(?i)\bDtoD\b|\bPtoP\b|device\s*->\s*device"

# what HTA takes a call to do: launch work, make its thread wait, take the lock of the runtime
HTA_CALLS = {
    "cudaLaunchKernel": ("launches", "locks"),
    "cudaLaunchKernelExC": ("launches",),
    "cuLaunchKernel": ("launches",),
    "cuLaunchKernelEx": ("launches",),
    "cudaMemcpyAsync": ("launches", "blocks", "locks"),
    "cudaMemsetAsync": ("launches",),
    "hipLaunchKernel": ("launches",),
    "hipExtModuleLaunchKernel": ("launches",),
    "hipMemsetAsync": ("launches",),
    "hipMemcpyAsync": ("launches",),
    "hipMemcpyWithStream": ("launches",),
    "runFunction - job_prep_and_submit_for_execution": ("launches",),
    "cudaDeviceSynchronize": ("blocks",),
    "cudaStreamSynchronize": ("blocks",),
    "cudaEventQuery": ("blocks",),
    "cudaEventSynchronize": ("blocks",),
    "cudaMemcpy": ("blocks",),
    "cudaHostAlloc": ("locks",),
}
HTA_EVENT_RECORD = "cudaEventRecord"


def pattern(*kinds: str) -> str:
    """Return a regular expression that matches the names of calls of the given kinds."""
    chosen = [call for call in CALLS if call.kind in kinds]
    return "|".join(f"^({'|'.join(call.runtimes)}){call.name}" for call in chosen)


def hta_calls(effect: str) -> tuple[str, ...]:
    """Return the calls with an effect in HTA's rules: launches, blocks or locks."""
    return tuple(name for name, effects in HTA_CALLS.items() if effect in effects)
