"""NCCL's cost model: every entry of its tables, every time and every choice, against its own code.

Each file holds communicators with their graphs, and what NCCL's tuning code, compiled and run on
them, computes: latency and bandwidth per collective, algorithm and protocol, and times of sizes.

    python verification/nccl_model.py [FILE...]
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _report import Checks, Tally, arguments

from nadi.systems import (
    ChannelGraph,
    NcclCommunicator,
    NcclCost,
    nccl_choices,
    nccl_costs,
    nccl_rules,
    nccl_times,
)

FILES = ("golden/nccl/nccl_2.30.7.json.gz", "golden/nccl/nccl_4versions.json.gz")
NEAR = 1e-6  # relative; NCCL computes in 32 bits
ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
COLLECTIVES = {
    "AllReduce": "all_reduce", "AllGather": "all_gather", "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast", "Reduce": "reduce",
}  # fmt: skip
# the numbers of path types, which differ between versions
PATHS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS")
OLD_PATHS = tuple(name for name in PATHS if name not in ("C2C", "P2C"))
HOSTS = {1: "x86", 2: "power", 3: "arm", 4: "mixed"}
VENDORS = {1: "intel", 2: "amd", 3: "zhaoxin", 4: "mixed"}


class Case(NamedTuple):
    """One communicator and what NCCL says of it."""

    version: str
    given: dict[str, Any]
    found: dict[str, Any]


def cases_of(path: Path) -> list[Case]:
    """Read the cases of a file: of one version, whose name says which, or of several."""
    content = json.loads(gzip.decompress(path.read_bytes()))
    if isinstance(content, list):
        version = path.name.removeprefix("nccl_").removesuffix(".json.gz")
        return [Case(version, case, case) for case in content]
    return [
        Case(version.removeprefix("v").split("-")[0], content["cases"][name], found)
        for version, by_name in content["versions"].items()
        for name, found in by_name.items()
    ]


def communicator_of(case: Case) -> NcclCommunicator:
    """Give the communicator of a case."""
    given = case.given
    minor = int(case.version.split(".")[1])
    paths = PATHS if minor > 22 else OLD_PATHS
    graphs = {}
    for algorithm, graph in given["graphs"].items():
        pattern = graph["pat"]
        if algorithm == "Tree":
            pattern = max(pattern, given.get("max_tree_pattern", 0))
        graphs[algorithm] = ChannelGraph(
            graph["c"], graph["bi"], graph["be"], paths[graph["ti"]], paths[graph["te"]],
            graph["lat"], bool(graph["same"]), pattern,
        )  # fmt: skip
    return NcclCommunicator(
        given["ranks"], given["nodes"], given["cc"], graphs, given["channels"],
        given.get("cc_max", 0), HOSTS[given["cpu_arch"]], VENDORS[given["cpu_vendor"]],
        bool(given["nvswitches"]),
    )  # fmt: skip


class Tallies(NamedTuple):
    """What is compared of a version."""

    entries: Tally
    times: Tally
    choices: Tally


def near(ours: float, theirs: float) -> bool:
    """Tell whether two numbers are equal but for 32 bits."""
    return abs(ours - theirs) <= NEAR * abs(theirs)


def compare(case: Case, tallies: Tallies) -> None:
    """Compare the table, the times and the choices of one case."""
    communicator, rules = communicator_of(case), nccl_rules(case.version)
    table = nccl_costs(communicator, rules)
    where = f"{case.version}, {case.given['ranks']} ranks on {case.given['nodes']} nodes"
    named = {f"{name}/{a}/{p}": (ours, a, p) for name, ours in COLLECTIVES.items()
             for a in ALGORITHMS for p in PROTOCOLS}  # fmt: skip
    for name, key in named.items():
        theirs = case.found["model"].get(name)
        ours = table.get(key, (0.0, 0.0))
        if theirs is None and ours == (0.0, 0.0):
            continue  # NCCL has no such kernel
        theirs = theirs or (0.0, 0.0)
        same = near(ours[0], theirs[0]) and near(ours[1], theirs[1])
        tallies.entries.add(exact=same, detail=f"{where}, {name}: {ours}, theirs {theirs}")
    by_size: dict[str, dict[int, dict[tuple[str, str], float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for name, theirs in case.found["times"].items():
        collective, algorithm, protocol, power = name.split("/")
        by_size[collective][int(power)][algorithm, protocol] = theirs
    for collective, of_sizes in by_size.items():
        sizes = np.array([1 << power for power in sorted(of_sizes)], dtype=np.int64)
        mine = COLLECTIVES[collective]
        for entry in next(iter(of_sizes.values())):
            key = (mine, *entry)
            cost = table.get(key, NcclCost(0.0, 0.0))
            ours = nccl_times(sizes, key, cost, communicator, rules)
            for power, time in zip(sorted(of_sizes), ours.tolist(), strict=True):
                theirs = of_sizes[power][entry]
                same = time == np.inf if theirs < 0 else near(time, theirs)
                detail = f"{where}, {key}, 2^{power} B: {time}, theirs {theirs}"
                tallies.times.add(exact=same, detail=detail)
        chosen = nccl_choices(sizes, mine, table, communicator, rules)
        for power, choice in zip(sorted(of_sizes), chosen, strict=True):
            theirs = first_of_least(of_sizes[power])
            detail = f"{where}, {mine}, 2^{power} B: {choice}, theirs {theirs}"
            tallies.choices.add(exact=theirs == choice[:2], detail=detail)


def first_of_least(times: dict[tuple[str, str], float]) -> tuple[str, str]:
    """Give the algorithm and protocol that NCCL takes: of the least times the first."""
    in_order = [(a, p) for a in ALGORITHMS for p in PROTOCOLS if times.get((a, p), -1) >= 0]
    return min(in_order, key=lambda entry: times[entry])


def main() -> None:
    checks = Checks()
    for path in arguments(*FILES):
        by_version: dict[str, Tallies] = defaultdict(lambda: Tallies(Tally(), Tally(), Tally()))
        for case in cases_of(path):
            compare(case, by_version[case.version])
        for version, tallies in by_version.items():
            for what, tally in zip(Tallies._fields, tallies, strict=True):
                checks.add_tally(f"{path.name}, NCCL {version}: {what}", tally)
    checks.finish()


if __name__ == "__main__":
    main()
