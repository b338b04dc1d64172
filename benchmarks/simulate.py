"""How fast jobs are simulated, in a warm process and on one core.

Usage: python benchmarks/simulate.py [FOLDER of unpacked golden traces]
       python benchmarks/simulate.py --skewed   (100,000 ranks once, for the memory of that alone)

GPT traces (64 ranks), the public collective cases without contention, an all-reduce of 1 GB
that all ranks begin at once, the same with skewed arrivals, messages that contend, and collectives
that compete, by each policy. Times are CPU seconds, best of several; the peer's are in
../shared/peers/astra-sim.md.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
import tarfile
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from _measure import SHARED, measure, nadi, peak_memory_mb

import nadi as library
from nadi.simulation.engine_driver import run_tables
from nadi.simulation.lowering.task_tables import tables_of
from nadi.simulation.work.program import program_of
from nadi.trace.attributes import AttributeBuilder

GOLDEN = SHARED / "golden" / "astra"
_CUBE = ["Ring", "FullyConnected", "Switch"]
_TYPES = {"all_reduce": 0, "all_gather": 2, "all_to_all": 6, "reduce_scatter": 7}


def best(work: Any, runs: int = 5) -> float:
    """Give the least CPU seconds of several runs."""
    seconds = []
    for _ in range(runs):
        begin = time.process_time()
        work()
        seconds.append(time.process_time() - begin)
    return min(seconds)


def written(folder: Path, kind: str, size: int, micros: int = 0) -> library.Trace:
    """Write a trace of one collective, after computing for a while, and read it."""
    attributes = [
        {"name": "is_cpu_op", "boolVal": False},
        {"name": "comm_type", "int64Val": str(_TYPES[kind])},
        {"name": "comm_size", "int64Val": str(size)},
    ]
    node: dict[str, Any] = {"id": "1", "name": kind, "type": "COMM_COLL_NODE", "attr": attributes}
    nodes = [node]
    if micros:
        node["dataDeps"] = ["0"]
        compute = {"id": "0", "name": "compute", "type": "COMP_NODE", "attr": attributes[:1]}
        nodes.insert(0, compute | {"durationMicros": str(micros)})
    path = folder / f"{kind}_{size}_{micros}.json"
    path.write_text(json.dumps({"globalMetadata": {"version": "0.0.4"}, "nodes": nodes}))
    return library.read(path)


def system_of(topology: list[str], counts: list[int], algorithm: str, **options: Any) -> Any:
    dims = len(counts)
    network = {
        "topology": topology, "npus_count": counts,
        "bandwidth": [50.0] * dims, "latency": [500.0] * dims,
    }  # fmt: skip
    names = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    system = {
        "endpoint-delay": 10, "active-chunks-per-dimension": 1, "preferred-dataset-splits": 4,
        "collective-optimization": "localBWAware", "local-mem-bw": 1600,
        **{f"{name}-implementation": [algorithm] * dims for name in names},
    }  # fmt: skip
    return library.simulator.astra_sim_system(
        network, system, options=library.simulator.AstraSimOptions(**options)
    )


def report_engine(what: str, traces: list[library.Trace], system: Any) -> None:
    """Time the engine by itself, and all of ``nadi.simulate``."""
    tables = tables_of(program_of(traces), system)
    room = {}

    def run() -> None:
        room["machine"] = run_tables(tables)

    alone = best(run)
    nodes, events = tables.program.num_nodes, int(room.pop("machine").agenda.counters[2])
    whole = best(lambda: library.simulate(traces, system))
    print(
        f"{what}: {nodes:,} nodes, engine {1e3 * alone:.1f} ms ="
        f" {nodes / alone / 1e6:.2f} M nodes/s,"
        f" {events / alone / 1e6:.1f} M events/s; nadi.simulate {1e3 * whole:.1f} ms;"
        f" {peak_memory_mb():,.0f} MB at peak so far"
    )


def eight_times(
    traces: list[library.Trace], groups: dict[str, list[int]]
) -> tuple[list[library.Trace], dict[str, list[int]]]:
    """Make a job of eight that do not know of each other, with ranks and groups of their own."""
    num_ranks = len(traces)
    found, all_groups = [], {}
    everyone = list(range(num_ranks))
    for copy in range(8):
        shift = copy * num_ranks
        for name, members in groups.items():
            all_groups[f"{copy}_{name}"] = [rank + shift for rank in members]
        all_groups[f"{copy}_all"] = [rank + shift for rank in everyone]
        for trace in traces:
            peers = [
                pl.when(pl.col(name) >= 0).then(pl.col(name) + shift).otherwise(-1).alias(name)
                for name in ("src", "dst")
            ]
            own = pl.col("name").is_in(["", "0"])
            names = pl.format(
                "{}_{}", pl.lit(copy), pl.when(own).then(pl.lit("all")).otherwise(pl.col("name"))
            )
            found.append(replace(
                trace, nodes=trace.nodes.with_columns(peers),
                groups=trace.groups.with_columns(names.alias("name")),
            ))  # fmt: skip
    return found, all_groups


def write_job(folder: Path, traces: list[library.Trace]) -> None:
    """Write traces whose groups and peers are others than the files say that they were read from.

    An .et is written as it was read, so what it says of these is replaced.
    """
    folder.mkdir()
    for rank, trace in enumerate(traces):
        names = trace.groups["name"].to_list()
        builder = AttributeBuilder()
        for row, (group, src, dst) in enumerate(trace.nodes.select(_OF_OTHERS).iter_rows()):
            if group >= 0:
                builder.add(row, "pg_name", "string", names[group])
            for name, peer in (("comm_src", src), ("comm_dst", dst)):
                if peer >= 0:
                    builder.add(row, name, "int32", peer)
        own = trace.attributes
        kept = np.ones(len(own), dtype=np.bool_)
        for name in ("pg_name", "comm_src", "comm_dst"):
            kept[own.rows_named(name)] = False
        attributes = own.filtered(kept).joined(builder.build())
        library.write(replace(trace, given_attributes=attributes), folder / f"gpt.{rank}.et")


_OF_OTHERS = ("group", "src", "dst")


def cases_without_contention(folder: Path) -> None:
    cases = json.loads(gzip.decompress((GOLDEN / "collectives.json.gz").read_bytes()))["cases"]
    given = []
    for case in cases:
        if case["backend"] != "congestion_unaware" or "cycles" not in case["result"]:
            continue
        work = case["workload"]
        trace = written(folder, work["collective"], work["comm_size"])
        given.append(([trace] * work["npus"], case))

    def run() -> None:
        for traces, case in given:
            options = case["cli"]
            system = library.simulator.astra_sim_system(
                case["network"], case["system"],
                options=library.simulator.AstraSimOptions(
                    queues=int(options.get("num-queues-per-dim", 1)),
                    rendezvous=options.get("rendezvous-protocol") == "true",
                    injection_scale=int(options.get("injection-scale", 1)),
                ),
            )  # fmt: skip
            library.simulate(traces, system)

    print(f"{len(given):,} public collective cases without contention: {best(run, 3):.2f} s")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given = Path(sys.argv[1]) if len(sys.argv) > 1 else folder
        if len(sys.argv) == 1:
            with tarfile.open(GOLDEN / "llm_gpt_444_L8.tar.gz") as archive:
                archive.extractall(folder)  # this project's own archive
        case = json.loads(gzip.decompress((GOLDEN / "llm.json.gz").read_bytes()))["cases"][1]
        gpt = given / "gpt_444_L8"
        system = library.simulator.astra_sim_system(
            case["network"], case["system"], None, case["comm_group"]
        )
        report_engine("GPT, 64 ranks", library.load.read_ranks(gpt), system)
        whole_process(folder, gpt, case)
        traces, groups = eight_times(library.load.read_ranks(gpt), case["comm_group"])
        network = {
            "topology": ["Ring"] * 3, "npus_count": [8, 8, 8], "bandwidth": [50.0] * 3,
            "latency": [500.0] * 3,
        }  # fmt: skip
        system = library.simulator.astra_sim_system(network, case["system"], None, groups)
        report_engine("GPT, 8 times 64 ranks", traces, system)
        large = folder / "gpt_8_times"
        write_job(large, traces)
        whole_process(folder, large, {**case, "network": network, "comm_group": groups})
        cases_without_contention(folder)
        one = written(folder, "all_reduce", 1 << 30)
        for topology, counts, algorithm in (
            (["Ring"], [1024], "ring"), (["Ring"], [1024], "direct"),
            (["Switch"], [4096], "halvingDoubling"), (_CUBE, [16, 16, 16], "ring"),
            (_CUBE, [50, 50, 40], "ring"),
        ):  # fmt: skip
            system = system_of(topology, counts, algorithm)
            traces = [one] * system.network.num_ranks
            seconds = best(lambda: library.simulate(traces, system))  # noqa: B023
            what = f"{algorithm}, {len(traces):,} ranks in {len(counts)} dimensions"
            print(f"all-reduce of 1 GB at once, {what}: {1e3 * seconds:.2f} ms")
        for counts, algorithm, shape in (([64], "ring", "Switch"), ([256], "ring", "Switch"),
                                         ([64], "direct", "Ring")):  # fmt: skip
            contended = system_of([shape], counts, algorithm, congestion=True)
            report_engine(f"contended {shape}, {algorithm}", [one] * counts[0], contended)
        competing(folder)
        for counts in ([16, 16, 16], [32, 32, 32], [50, 50, 40]):
            system = system_of(_CUBE, counts, "ring")
            what = f"skewed arrivals, {system.network.num_ranks:,} ranks"
            report_engine(what, skewed_traces(folder, system), system)


def competing(folder: Path) -> None:
    """Time the policies of queues on devices, where 200 all-reduces are ready at once."""
    random.seed(1)
    nodes = [
        {
            "id": str(k), "name": f"sum{k}", "type": "COMM_COLL_NODE",
            "attr": [{"name": "is_cpu_op", "boolVal": False},
                     {"name": "comm_type", "int64Val": "0"},
                     {"name": "comm_size", "int64Val": str(1 << 20)},
                     {"name": "comm_priority", "int32Val": random.randrange(100)}],
        }
        for k in range(200)
    ]  # fmt: skip
    path = folder / "competing.json"
    path.write_text(json.dumps({"globalMetadata": {"version": "0.0.4"}, "nodes": nodes}))
    program, found = program_of([library.read(path)] * 64), []
    given = system_of(["Switch"], [64], "ring")
    for policy in ("fifo", "lifo", "explicit"):
        collectives = msgspec.structs.replace(given.collectives, policy=policy)
        system = msgspec.structs.replace(given, collectives=collectives, slots="device")
        tables = tables_of(program, system)
        found.append(f"{policy} {1e3 * best(lambda: run_tables(tables)):.0f} ms")  # noqa: B023
    print(f"64 ranks, 200 all-reduces of 4 chunks that compete, engine: {', '.join(found)}")


def skewed_traces(folder: Path, system: Any) -> list[library.Trace]:
    """Give a trace for each rank, of 64 that begin their all-reduce at different times."""
    random.seed(1)
    skewed = [written(folder, "all_reduce", 1 << 30, random.randrange(1, 1000)) for _ in range(64)]
    return [skewed[rank * 7919 % 64] for rank in range(system.network.num_ranks)]


def skewed_once() -> None:
    with tempfile.TemporaryDirectory() as folder:
        system = system_of(_CUBE, [50, 50, 40], "ring")
        traces = skewed_traces(Path(folder), system)
        seconds = best(lambda: library.simulate(traces, system), 1)
    print(
        f"skewed arrivals, {len(traces):,} ranks, once: {seconds:.2f} s and its kernels loaded,"
        f" {peak_memory_mb():,.0f} MB at peak of the process"
    )


def whole_process(folder: Path, gpt: Path, case: dict[str, Any]) -> None:
    network = "\n".join(f"{key}: {json.dumps(value)}" for key, value in case["network"].items())
    (folder / "network.yml").write_text(network)
    (folder / "system.json").write_text(json.dumps(case["system"]))
    (folder / "groups.json").write_text(json.dumps(case["comm_group"]))
    command = nadi(
        "simulate", str(gpt), "--network", str(folder / "network.yml"),
        "--system-config", str(folder / "system.json"), "--comm-group", str(folder / "groups.json"),
    )  # fmt: skip
    ranks = len(list(gpt.glob("*.et")))
    print(f"whole process, GPT of {ranks} ranks: {measure(command, 5)}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--skewed"]:
        skewed_once()
    else:
        main()
