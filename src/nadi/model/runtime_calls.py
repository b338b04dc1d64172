"""The calls of CUDA's and HIP's runtimes and drivers that say who waits for whom.

:data:`CALLS` declares what Nadi knows of each kind of call, whichever runtime it is of: a new
runtime is a prefix more in its rows. :data:`HTA_CALLS` declares what HTA's rules know, which
look for whole names. Copies are told apart by the names that the profiler gives them on the
device, as in ``Memcpy DtoH (Device -> Pageable)``.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "CALLS", "COPY_FROM_PAGEABLE", "COPY_ON_DEVICE", "COPY_TO_PAGEABLE", "HTA_CALLS",
    "HTA_EVENT_RECORD", "RuntimeCall", "hta_calls", "pattern",
]  # fmt: skip


class RuntimeCall(NamedTuple):
    """A kind of call.

    Attributes
    ----------
    kind
        As the rules name it.
    runtimes
        The prefixes of the runtimes and drivers that have it: ``cu`` is CUDA's driver.
    name
        What follows the prefix, as a regular expression. Names may go on after it, with a
        version (``_v2``) or a variant (``WithFlags``), unless it ends in ``$``.
    effect
        What the call does to the thread that makes it, and to streams.
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
    """Give a regular expression that the names of calls of some kinds fit."""
    chosen = [call for call in CALLS if call.kind in kinds]
    return "|".join(f"^({'|'.join(call.runtimes)}){call.name}" for call in chosen)


def hta_calls(effect: str) -> tuple[str, ...]:
    """Name the calls that by HTA's rules have an effect: launches, blocks or locks."""
    return tuple(name for name, effects in HTA_CALLS.items() if effect in effects)
