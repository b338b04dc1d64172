"""What must hold of the dependencies of every job.

Usage: python verification/dependency_order.py [FILE_OR_FOLDER,FILE,...]

Each argument names the traces of one job. Checked of each: no dependency closes a cycle,
neither among starts and ends of the operations of a rank nor among the moments of the event
graph; all device work but the first of its stream comes after the work before it there; every
collective comes after the one before it in its process group, or, where the recording does
not tell the group, on its stream or thread. Paths are looked for by plain Python
(``_reach.py``) in the tables that Nadi gives.
"""

from __future__ import annotations

import sys
from itertools import pairwise

from _linked import Linked
from _reach import topological_order
from _report import SHARED, Checks

import nadi

TRACES = SHARED / "traces"
_FOLDERS = ("cpu_mlp", "cpu_transformer4", "cpu_transformer_mid", "cpu_transformer_big", "cpu_ddp4",
            "gpu_resnet_pair", "gpu_simple_add_pair")  # fmt: skip
_DEVICE_TRACES = ("alexnet", "cpu_only", "cuda_event_sync", "cuda_event_sync_multi_stream",
                  "ns_resolution", "simple_add", "timeline_analysis", "triton")  # fmt: skip
DEFAULT = (
    *(f"{TRACES}/{folder}" for folder in _FOLDERS),
    ",".join(f"{TRACES}/gpu_dlrm8/device_{rank}.json.gz" for rank in range(8)),
    *(f"{TRACES}/gpu_hta/{name}.json.gz" for name in _DEVICE_TRACES),
    ",".join(f"{TRACES}/gpu_hta/trace_filter_rank{rank}.json.gz" for rank in range(2)),
)
_DEVICE_WORK = ("kernel", "memcpy", "memset")


def check(argument: str, checks: Checks) -> None:
    paths = argument.split(",")
    job = nadi.load_job(*paths)
    name = "/".join(paths[0].split("/")[-2:])
    for trace in job.traces:
        ours = Linked(trace)
        of_rank = f"{name} rank {trace.rank}"
        num_vertices = 2 * len(ours.start)
        ordered = len(topological_order(num_vertices, ours.edges()))
        checks.add_many(f"{of_rank}: starts and ends on no cycle", ordered, num_vertices)
        check_streams(of_rank, ours, checks)
        if ordered == num_vertices:
            check_collectives(of_rank, ours, checks)
    graph = nadi.build_graph(job)
    sources, bounds = graph.in_src.tolist(), graph.in_ptr.tolist()
    edges = [
        (source, vertex)
        for vertex, (begin, end) in enumerate(pairwise(bounds))
        for source in sources[begin:end]
    ]
    ordered = len(topological_order(graph.num_vertices, edges))
    checks.add_many(f"{name}: moments of the graph on no cycle", ordered, graph.num_vertices)


def check_streams(name: str, ours: Linked, checks: Checks) -> None:
    """All device work but the first of each stream has a predecessor there."""
    values = ours.values
    streams: dict[tuple[int, int], list[int]] = {}
    for row, category in enumerate(values["category"]):
        if category in _DEVICE_WORK:
            streams.setdefault((values["device"][row], values["stream"][row]), []).append(row)
    before = {(src, dst) for src, dst, kind in ours.deps if kind == "stream"}
    pairs = [
        pair
        for rows in streams.values()
        for pair in pairwise(sorted(rows, key=lambda row: (ours.start[row], row)))
    ]
    if pairs:
        checks.add_many(
            f"{name}: device work follows on its stream", sum(pair in before for pair in pairs),
            len(pairs), f"{len(streams)} streams",
        )  # fmt: skip


def check_collectives(name: str, ours: Linked, checks: Checks) -> None:
    """Every collective comes after the one before it in its process group."""
    values = ours.values
    groups: dict[tuple[int, ...], list[int]] = {}
    for row, kind in enumerate(values["kind"]):
        if kind == "COMM_COLL" and ours.start[row] >= 0:
            group, on_host = values["group"][row], values["is_cpu"][row]
            place = [values[column][row] for column in ("device", "stream", "thread")]
            # one group may use gloo and a device's library, which do not wait for each other
            groups.setdefault((group, on_host) if group >= 0 else (-1, *place), []).append(row)
    pairs = [
        pair for rows in groups.values() for pair in pairwise(sorted(rows, key=ours.asked_for))
    ]
    if not pairs:
        return
    stated = {(src, dst) for src, dst, kind in ours.deps if kind == "comm"}
    ordered = sum(pair in stated or ours.reach.leads(2 * pair[0], 2 * pair[1]) for pair in pairs)
    known = sum(group[0] >= 0 for group in groups)
    detail = f"{known} groups, {len(groups) - known} streams or threads of unknown ones"
    checks.add_many(f"{name}: collectives follow in their group", ordered, len(pairs), detail)


def main() -> None:
    checks = Checks()
    for argument in sys.argv[1:] or DEFAULT:
        check(argument, checks)
    checks.finish()


if __name__ == "__main__":
    main()
