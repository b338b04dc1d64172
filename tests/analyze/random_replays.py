"""Replays of random graphs over the operations of two ranks, with short times so that many tie."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np

import nadi
from nadi.graph.event_graph import EdgeKind, Edges, EventGraph
from nadi.graph.replay import Replay
from nadi.graph.windows import Window
from nadi.trace.schema import DEPS, DEVICE_WORK
from tests.conftest import PairWriter

__all__ = ["ON_DEVICE", "operations", "random_replay", "random_window"]

ON_DEVICE = frozenset(DEVICE_WORK)
_NUM_HUBS = 3
_KINDS = (
    EdgeKind.HOST_OP, EdgeKind.HOST_OP, EdgeKind.HOST_GAP, EdgeKind.HOST_GAP, EdgeKind.LAUNCH,
    EdgeKind.STREAM, EdgeKind.KERNEL, EdgeKind.SYNC, EdgeKind.THREAD, EdgeKind.COMMUNICATION,
)  # fmt: skip
_DEPS = ("launch", "event", "sync", "thread", "call", "order", "stream")


def operations(folder: Path) -> EventGraph:
    """Give operations of all kinds on two ranks; what a test uses of them are not their times."""
    for rank in range(2):
        pair = PairWriter(folder)
        pair.device_keys["distributedInfo"] = {"rank": rank, "world_size": 2}
        names = ("aten::mm", "main.py: train", "cudaStreamSynchronize", "cudaDeviceSynchronize",
                 "cudaEventSynchronize", "aten::mm", "aten::add")  # fmt: skip
        for number, name in enumerate(names[rank:]):
            category = "cuda_runtime" if name.startswith("cuda") else "cpu_op"
            category = "python_function" if name.startswith("main") else category
            pair.event(name, 10 * number, 5, category, correlation=50 + number)
        for number, (name, device, stream) in enumerate(
            (("gemm", 0, 7), ("fill", 0, 9), ("gemm", 1, 7), ("add", 0, 7))
        ):
            pair.event(name, 200 + 10 * number, 5, "kernel", pid=device, tid=stream,
                       stream=stream, device=device)  # fmt: skip
        (folder / "ranks").mkdir(exist_ok=True)
        pair.folder = folder / "ranks"
        _, device = pair.write(f"_{rank}")
        device.with_name(f"host_{rank}.json").unlink()
    return nadi.build_graph(nadi.load_job(folder / "ranks"))


def random_replay(graph: EventGraph, seed: int, unit: int = 1) -> Replay:
    """Draw edges, delays and dependencies for some of the operations; times in ``unit`` ns."""
    rng = Random(seed)
    kept = np.array([rng.random() < 0.8 for _ in range(graph.num_ops)])
    kept[rng.randrange(graph.num_ops)] = True
    vertices = np.flatnonzero(np.repeat(kept, 2))
    graph = graph.of_operations(kept, vertices)
    place = _places(rng, graph.num_ops)
    rows = [
        edge for vertex in sorted(place) for edge in _edges_into(rng, vertex, place, graph.num_ops)
    ]
    src, dst, weight, kind, op = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    delay = np.array([rng.choice((0, 0, 0, 1, 2, 4, 5)) for _ in range(vertices.size)])
    job = replace(
        graph.job,
        traces=tuple(
            replace(trace, deps=DEPS.build(*_deps(rng, graph, number, src, dst)))
            for number, trace in enumerate(graph.job.traces)
        ),
    )
    graph = replace(graph, job=job, delay=delay * unit)
    graph = graph.with_edges(Edges(src, dst, weight * unit, kind, op), _NUM_HUBS)
    replay = nadi.graph.replay_graph(graph)
    return nadi.graph.replay_graph(replace(graph, time=replay.time))


def _places(rng: Random, num_ops: int) -> dict[int, float]:
    """Draw an order of vertices in which each operation's start comes before its end."""
    place = {vertex: rng.random() for vertex in range(2 * num_ops + _NUM_HUBS)}
    for op in range(num_ops):
        place[2 * op], place[2 * op + 1] = sorted((place[2 * op], place[2 * op + 1]))
    return place


def _edges_into(
    rng: Random, vertex: int, place: dict[int, float], num_ops: int
) -> list[tuple[int, int, int, int, int]]:
    sooner = [v for v in place if place[v] < place[vertex]]
    if vertex >= 2 * num_ops:  # ranks enter a collective
        ends = [v for v in sooner if v < 2 * num_ops]
        chosen = rng.sample(ends, min(rng.randint(1, 3), len(ends)))
        return [(v, vertex, 0, EdgeKind.ARRIVAL, v // 2) for v in chosen]
    found = []
    chosen = rng.sample(sooner, min(rng.choice((0, 1, 2, 2, 3)), len(sooner)))
    met = [v for v in sooner if v >= 2 * num_ops and v not in chosen]
    for v in [*chosen, *rng.sample(met, min(rng.choice((0, 1)), len(met)))]:
        kind = rng.choice(_KINDS)
        op = rng.choice((-1, vertex // 2, vertex // 2, 0, rng.randrange(num_ops)))
        if v >= 2 * num_ops:  # out of a collective goes who took part in it
            kind, op = EdgeKind.COMMUNICATION, vertex // 2
        found.append((v, vertex, rng.choice((0, 1, 1, 1, 1, 2, 3, 40)), int(kind), op))
    return found


def _deps(
    rng: Random, graph: EventGraph, number: int, src: np.ndarray, dst: np.ndarray
) -> tuple[int, dict[str, object]]:
    """State most of the edges within a rank as dependencies, and some that no edge shows."""
    height = graph.job.traces[number].nodes.height
    found = {(rng.randrange(height), rng.randrange(height)) for _ in range(6)}
    inside = (src < 2 * graph.num_ops) & (dst < 2 * graph.num_ops)
    for a, b in zip(src[inside] // 2, dst[inside] // 2, strict=True):
        if graph.op_trace[a] == graph.op_trace[b] == number and rng.random() < 0.6:
            found.add((int(graph.op_row[a]), int(graph.op_row[b])))
    pairs = sorted(found)
    return len(pairs), {
        "src": np.array([a for a, _ in pairs], dtype=np.int64),
        "dst": np.array([b for _, b in pairs], dtype=np.int64),
        "kind": [rng.choice(_DEPS) for _ in pairs],
        "inferred": [rng.random() < 0.7 for _ in pairs],
    }


def random_window(replay: Replay, seed: int) -> Window:
    """Draw a window: all, or from one moment to another."""
    rng = Random(seed)
    time = replay.time
    vertices = range(2 * replay.graph.num_ops)
    first, last = sorted(rng.choices(vertices, k=2), key=lambda v: (int(time[v]), v))
    if rng.random() < 0.3:
        first = int(np.argmin(time))
    return Window("drawn", -1, np.array([first]), np.array([last]))
