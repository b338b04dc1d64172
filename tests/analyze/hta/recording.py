"""Small device traces written by hand, and what HTA's rules make of them, by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nadi

HOST = {"pid": 100, "tid": 1}


class Recording:
    """Writes events; times in us, host work on thread 1 unless given as ``tid=``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[dict[str, Any]] = []

    def event(self, cat: str, name: str, ts: float, dur: float, **args: Any) -> None:
        """Add an event."""
        place = {key: args.pop(key, value) for key, value in HOST.items()}
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args, **place}
        )

    def op(self, name: str, ts: float, dur: float, **args: Any) -> None:
        """Add an operator."""
        self.event("cpu_op", name, ts, dur, **args)

    def mark(self, name: str, ts: float, dur: float, **args: Any) -> None:
        """Add an annotation."""
        self.event("user_annotation", name, ts, dur, **args)

    def call(self, name: str, ts: float, dur: float, correlation: int = -1, **args: Any) -> None:
        """Add a runtime call."""
        self.event("cuda_runtime", name, ts, dur, correlation=correlation, **args)

    def kernel(self, name: str, ts: float, dur: float, correlation: int, stream: int = 7) -> None:
        """Add a kernel."""
        self.event("kernel", name, ts, dur, pid=0, tid=stream, stream=stream, device=0,
                   correlation=correlation)  # fmt: skip

    def launch(
        self, name: str, call: tuple[float, float], kernel: tuple[float, float], correlation: int,
        *, stream: int = 7, **place: int,
    ) -> None:  # fmt: skip
        """Add a kernel and the call that launched it, each by start and duration."""
        self.call("cudaLaunchKernel", *call, correlation, **place)
        self.kernel(name, *kernel, correlation, stream)

    def sync(self, name: str, ts: float, dur: float, correlation: int, **args: Any) -> None:
        """Add a synchronization event."""
        stream = args.pop("stream", -1)
        self.event("cuda_sync", name, ts, dur, pid=0, tid=stream, stream=stream, device=0,
                   correlation=correlation, **args)  # fmt: skip

    def read(self, name: str = "device.json") -> nadi.Trace:
        """Write the file and read it."""
        path = self.folder / name
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": self.events}))
        return nadi.read(path)

    def path(self, **options: Any) -> nadi.analyses.HtaCriticalPath:
        """Find the critical path."""
        return nadi.analyses.hta_critical_path(self.read(), **options)


def moment_names(path: nadi.analyses.HtaCriticalPath) -> dict[int, str]:
    """Name each node by its event: ``mm.s`` is the start of mm, ``mm.e`` its end."""
    moments = path.moments
    names = moments.events["name"].gather(moments.row)
    return {
        node: f"{name}.{'s' if is_start else 'e'}"
        for node, (name, is_start) in enumerate(zip(names, moments.is_start, strict=True))
    }


def edges_of(path: nadi.analyses.HtaCriticalPath) -> list[tuple[str, str, str, float]]:
    """Give the edges as (from, to, type, weight in us) in the order in which they are added."""
    name = moment_names(path)
    chosen = path.edges.select("begin", "end", "type", "edge_weight")
    return [(name[a], name[b], kind, weight) for a, b, kind, weight in chosen.iter_rows()]


def on_path(path: nadi.analyses.HtaCriticalPath) -> list[str]:
    """Give the names of the nodes on the path."""
    name = moment_names(path)
    return [name[node] for node in path.path["node"]]
