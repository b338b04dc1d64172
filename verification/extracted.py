"""Check that parts of real recordings are traces of their own, and with the rest give the whole.

Each cut is drawn at random, with a seed: steps, time ranges, ranks, operations with what is nested
in them, and several of these together. It is extracted to files, and four things have to hold, to
the nanosecond:

1. The part alone and the rest alone, each with what the other gives it, replay to the measured
   times of the whole.
2. With all weights changed at random, part and rest that hand each other their times until these
   stay the same give the times of the whole with the same change.
3. The files are valid, and read back as the same operations with the same times, which the event
   graph replays.
4. Each recorded wait is for a node of the files, and over when the node starts or ends.

Usage: ``python verification/extracted.py [--all] [FOLDER...]``; without ``--all`` 60 cuts of 200.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
from _report import SHARED, Checks, arguments

import nadi
from nadi.graph import EventGraph, find_steps, replay_graph
from nadi.recordings import link_job, read_job
from nadi.sharing import cut_graph
from nadi.trace import validate_job, validate_trace
from nadi.whatif import PartOf, part_operations

CUTS = 200 if "--all" in sys.argv else 60
HTA = (
    "alexnet", "cpu_only", "cuda_event_sync", "cuda_event_sync_multi_stream", "ns_resolution",
    "simple_add", "timeline_analysis", "triton",
)  # fmt: skip
RECORDINGS = (
    "cpu_ddp4", "cpu_mlp", "cpu_transformer4", "cpu_transformer_big", "cpu_transformer_mid",
    "gpu_dlrm8", "gpu_resnet_pair", "gpu_simple_add_pair",
    *(f"gpu_hta/{name}.json.gz" for name in HTA),
)  # fmt: skip
LARGE = 100_000  # operations; such recordings get fewer cuts than others
Random = np.random.Generator


def graph_of(path: Path) -> EventGraph:
    """Build the graph of a recording, or of linked traces."""
    if path.is_dir() and any(file.suffix in (".et", ".nadi") for file in path.iterdir()):
        job = read_job(path)
        return nadi.build_graph(job if isinstance(job, nadi.Job) else link_job(job))
    return nadi.build_graph(nadi.load_job(path))


def random_part(graph: EventGraph, random: Random) -> PartOf:
    """Draw one to three conditions."""
    steps, ranks = find_steps(graph), graph.job.ranks
    end = int(graph.time.max())
    names = graph.op_names
    first, last = sorted(random.integers(0, end, 2).tolist())
    a, b = sorted(random.integers(0, len(ranks), 2).tolist())
    drawn = {
        "window": f"{first}ns:{last + 1}ns",
        "under": f"^{_escaped(names[int(random.integers(0, graph.num_ops))])}$",
    }
    if steps:
        drawn["step"] = str(steps[int(random.integers(0, len(steps)))].number)
    if len(ranks) > 1:
        drawn["ranks"] = f"{ranks[a]}-{ranks[b]}"
    chosen = random.permutation(list(drawn))[: int(random.integers(1, 4))]
    return PartOf(**{name: drawn[name] for name in chosen.tolist()})


def _escaped(name: str) -> str:
    return "".join(f"\\{c}" if c in r".^$*+?{}[]\|()" else c for c in name)


def halves_give_the_whole(graph: EventGraph, chosen: np.ndarray, random: Random) -> bool:
    """Check what holds of the graph alone: as measured, and with other weights."""
    cut = cut_graph(graph, chosen)
    for half in (cut.part, cut.rest):
        times = half.replay(graph.time).time[: half.own.size]
        if not np.array_equal(times, graph.time[half.own]):
            return False
    factor = random.uniform(0.2, 2.0, graph.num_edges)
    changed = graph.with_weights((graph.weight * factor).astype(np.int64))
    wanted = replay_graph(changed).time
    cut = cut_graph(changed, chosen)
    found = graph.time.copy()
    while True:
        before = found.copy()
        for half in (cut.part, cut.rest):
            found[half.own] = half.replay(found).time[: half.own.size]
        if np.array_equal(found, before):
            return np.array_equal(found, wanted)


def files_hold_the_part(whole: EventGraph, chosen: np.ndarray, part: nadi.sharing.Extraction,
                        folder: Path) -> str:  # fmt: skip
    """Read the files; gives what is wrong with them, or nothing."""
    graph = graph_of(folder)
    by_event = any(file.name.startswith("device_") for file in part.files)
    for file in part.files:
        if not file.name.endswith(".csv") and validate_trace(nadi.read(file)).height:
            return f"{file.name} is not valid"
    if any(validate_trace(trace).height for trace in graph.job.traces):
        return "a linked trace is not valid"
    if validate_job(graph.job).height:
        return "the job is not valid"
    if graph.num_ops != chosen.sum():
        return f"{graph.num_ops} operations, not {chosen.sum()}"
    ranks = np.array(whole.job.ranks)[whole.op_trace[chosen]]
    if not by_event and part.files[0].suffix == ".et":  # which numbers ranks from 0
        ranks = np.searchsorted(part.ranks, ranks)
    if not np.array_equal(np.array(graph.job.ranks)[graph.op_trace], ranks):
        return "the ranks differ"
    if not graph.op_names.equals(whole.op_names.filter(pl.Series(chosen))):
        return "the names differ"
    at = 2 * np.flatnonzero(chosen)
    shift = whole.job.origin - graph.job.origin
    replayed = replay_graph(graph).time
    for side in (0, 1):
        if not np.array_equal(replayed[side : 2 * graph.num_ops : 2],
                              whole.time[at + side] + shift):  # fmt: skip
            return "the times differ"
    here = dict(zip(graph.job.ranks, part.ranks, strict=True))
    return waits_hold(graph, part.waits, here, by_event=by_event)


def waits_hold(
    graph: EventGraph, waits: pl.DataFrame, rank_of: dict[int, int], *, by_event: bool
) -> str:
    """Check that waits are for nodes of the part, and over when these start or end."""
    key = "event" if by_event else "id"
    nodes = pl.concat([
        trace.nodes.select(pl.lit(rank_of[rank], pl.Int64).alias("rank"), pl.col(key).alias("node"),
                           "start", "duration", there=pl.col("name").cast(pl.String))
        for rank, trace in zip(graph.job.ranks, graph.job.traces, strict=True)
    ]).filter(pl.col("start") >= 0)  # fmt: skip
    both = waits.join(nodes, on=["rank", "node"], how="inner")
    if both.height != waits.height:
        return f"{waits.height - both.height} waits are for unknown nodes"
    if (both["name"] != both["there"]).any():
        return "waits are for other nodes"
    moment = pl.when(pl.col("moment") == "end").then(pl.col("start") + pl.col("duration"))
    late = both.filter(pl.col("at_ns") + pl.col("after_ns") > moment.otherwise("start"))
    return f"{late.height} waits are not over" if late.height else ""


def check(path: Path, graph: EventGraph, random: Random, met: Counter[str]) -> str:
    """Draw a part of a recording, and check it; gives what is wrong, or nothing."""
    while True:
        part_of = random_part(graph, random)
        try:
            chosen = part_operations(graph, part_of)
        except nadi.errors.UsageError:  # nothing meets all conditions: another draw
            continue
        break
    met.update(name for name, value in vars(part_of).items() if value)
    if not halves_give_the_whole(graph, chosen, random):
        return f"{part_of}: part and rest are not the whole"
    with tempfile.TemporaryDirectory() as folder:
        part = nadi.extract(path, output=folder, **vars(part_of))
        try:
            wrong = files_hold_the_part(graph, chosen, part, Path(folder))
        except nadi.NadiError as error:
            wrong = str(error)
    met["cut collectives"] += part.num_cut_collectives
    met["waits"] += part.waits.height
    return f"{part_of}: {wrong}" if wrong else ""


def sources(folder: Path) -> dict[str, Callable[[], Path]]:
    """Give the recordings to cut, and some of them linked."""
    if "--all" in sys.argv:
        sys.argv.remove("--all")
    given = arguments(*(f"traces/{name}" for name in RECORDINGS))
    found: dict[str, Callable[[], Path]] = {
        path.name: lambda path=path: path for path in given if path.exists()
    }
    if len(sys.argv) > 1:
        return found
    ranks = folder / "trace_filter_ranks"
    ranks.mkdir()
    for file in (SHARED / "traces" / "gpu_hta").glob("trace_filter_rank*.json.gz"):
        shutil.copy(file, ranks)
    if any(ranks.iterdir()):
        found[ranks.name] = lambda: ranks
    for path in given:
        for kind in ("nadi", "chakra") if path.name in ("cpu_ddp4", "gpu_resnet_pair") else ():
            target = folder / f"{path.name}_{kind}"

            def link(path: Path = path, target: Path = target, kind: str = kind) -> Path:
                nadi.link_files(path, output=target, to=kind)
                return target

            found[target.name] = link
    return found


def main() -> None:
    """Check all cuts; exit code 1 unless all hold."""
    checks = Checks()
    random = np.random.default_rng(20)
    met: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        named = sources(Path(folder))
        paths = {name: make() for name, make in named.items()}
        graphs = {name: graph_of(path) for name, path in paths.items()}
        weights = {n: 0.5 if g.num_ops > LARGE else 1.0 for n, g in graphs.items()}
        per_weight = CUTS / max(sum(weights.values()), 1)
        cuts = {name: max(round(weight * per_weight), 1) for name, weight in weights.items()}
        cuts[max(cuts, key=lambda name: cuts[name])] += CUTS - sum(cuts.values())
        for name, graph in graphs.items():
            begin = time.perf_counter()
            wrong = [check(paths[name], graph, random, met) for _ in range(cuts[name])]
            bad = [text for text in wrong if text]
            seconds = time.perf_counter() - begin
            checks.add_many(
                f"{name}, {graph.num_ops:,} operations, cuts",
                len(wrong) - len(bad),
                len(wrong),
                "; ".join(bad[:5]) or f"{seconds:.1f} s",
            )
    print(", ".join(f"{name} {count:,}" for name, count in sorted(met.items())))
    checks.finish()


if __name__ == "__main__":
    main()
