"""Published measurements of collectives, and how far off Nadi's times are.

Systems state what corrects NCCL's model, and to which published tables that was fitted. Those
sources are marked, and the sums leave them out. Machines without a file of Nadi's are described
in benchmarks/systems; tables that discussions of other projects quote are in
benchmarks/quoted_collectives.json.

Nadi gives the time of the kernel. Some tables also hold what the host does: it is added, by what
the measuring program does and is known from elsewhere (``Host``).

    python benchmarks/published_collectives.py [--all] [FILE...]

Prints for each source the mean absolute error over its sizes: of NCCL's own model, of Nadi, and of
a table of the same type of machine where another source has one (in the sums also at the sizes
alone that this table has); with --all every size. Records that are not listed here are compared on
the system of the GPU that they state; why others are not, and how many rows have no size or time,
stands behind. A FILE may also be a table of measured rows in Parquet
(``shared/data/field/collectives``), whose name begins with its machine.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl
from _measure import SHARED

import nadi
from nadi.systems.nccl.measured import MeasuredCollective

FILES = ("collectives_nccl_rccl_tests.json.gz", "collectives_other.json.gz")
OWN = Path(__file__).parent / "systems"
QUOTED = Path(__file__).parent / "quoted_collectives.json"
A3_MEGA, P4DE = str(OWN / "gcp-a3-mega.toml"), str(OWN / "aws-p4de.toml")
NVL64, MI355X = str(OWN / "gb200-nvl64.toml"), str(OWN / "mi355x-node.toml")


class Host(NamedTuple):
    """What a table holds beside the kernel, us.

    Attributes
    ----------
    per_gpu
        One process launches on all GPUs, one after the other: no collective takes less than this
        for each of them.
    before
        The GPU waits for the host to launch.
    """

    per_gpu: float = 0.0
    before: float = 0.0

    def added(self, times: Sequence[float], ranks: int) -> list[float]:
        """Add it to times in ns."""
        least = self.per_gpu * ranks * 1000
        return [max(time + self.before * 1000, least) for time in times]


# all_reduce_perf -g 8. 22 us for 4 GPUs where the kernel takes less than 8 (NVIDIA/nccl-tests,
# issue 333); with the CPUs of Azure's ND v5, 31 us for 8 (its table of 8 H200)
ONE_PROCESS, ONE_PROCESS_V5 = Host(per_gpu=5.5), Host(per_gpu=31 / 8)
# all_reduce_bench.py: one call of torch on an idle GPU, 20 to 30 us by its own description
TORCH = Host(before=25)


class Source(NamedTuple):
    """How a record is compared.

    Attributes
    ----------
    system
        By name or file.
    ranks
        How many.
    fitted
        Whether the system's file states a figure that was fitted to this record.
    beside
        The record whose table stands in for this machine's own, as with --measured.
    host
        What it holds beside the kernel.
    """

    system: str
    ranks: int
    fitted: bool = False
    beside: str = ""
    host: Host = Host()


OCI = "oci-a100-40g-2node-16gpu-allreduce-"
COMPARED: dict[str, Source] = {
    "azure-nd_a100_v4-1node-8gpu-allreduce-busbw": Source(
        "dgx-a100", 8, beside="stas00-a100-8gpu-nccl-tests-allreduce", host=ONE_PROCESS
    ),
    "stas00-a100-8gpu-nccl-tests-allreduce": Source(
        "dgx-a100", 8, beside="azure-nd_a100_v4-1node-8gpu-allreduce-busbw", host=ONE_PROCESS
    ),
    f"{OCI}2024": Source("dgx-a100", 16),
    f"{OCI}2025": Source("dgx-a100", 16, beside=f"{OCI}2026-slurm-operator"),
    f"{OCI}2026-slurm": Source("dgx-a100", 16, beside=f"{OCI}2025"),
    f"{OCI}2026-slurm-operator": Source("dgx-a100", 16, beside=f"{OCI}2025"),
    "coreweave-a100-80g-32gpu-2023-allreduce-largesizes": Source("dgx-a100", 32),
    "coreweave-a100-80g-32gpu-ib-sharp-allreduce": Source("dgx-a100", 32, fitted=True),
    "aws-p4de-2node-16gpu-allreduce": Source(P4DE, 16),
    "azure-nd_h100_v5-1node-8gpu-allreduce-busbw": Source(
        "dgx-h100", 8, beside="azure-nd_h200_v5-8gpu", host=ONE_PROCESS_V5
    ),
    "stas00-h200-8gpu-allreduce-bench-sweep": Source(
        "hgx-h200", 8, beside="azure-nd_h100_v5-1node-8gpu-allreduce-busbw", host=TORCH
    ),
    "oci-h100-2node-16gpu-allreduce": Source("dgx-h100", 16),
    "gcp-a3ultra-h200-2node-16gpu-allgather-ctk": Source("hgx-h200", 16),
    "gcp-a3mega-h100-2node-16gpu-allgather-ctk": Source(A3_MEGA, 16, fitted=True),
    "gcp-a3mega-h100-2node-16gpu-allgather-dstack": Source(
        A3_MEGA, 16, beside="gcp-a3mega-h100-2node-16gpu-allgather-ctk"
    ),
    "gcp-a3mega-h100-2node-16gpu-allreduce-ztan": Source(A3_MEGA, 16),
    "gke-a4-b200-1node-8gpu-allreduce": Source("dgx-b200", 8, fitted=True),
    "stas00-b200-1node-vs-4node-allreduce-sweep": Source(
        "dgx-b200", 8, beside="gke-a4-b200-1node-8gpu-allreduce", host=TORCH
    ),
    "gcp-a4-b200-2node-16gpu-allreduce-dstack": Source("dgx-b200", 16, fitted=True),
    "gke-a4-b200-2node-16gpu-allreduce": Source(
        "dgx-b200", 16, beside="gcp-a4-b200-2node-16gpu-allreduce-dstack"
    ),
    "coreweave-gb200-nvl72-1rack-72gpu-allreduce": Source("gb200-nvl72", 72),
    "oci-gb200-2racks-128gpu-allreduce-2026": Source(NVL64, 128),
    "aac8-mi300x-1node-8gpu-allreduce": Source("mi300x-node", 8),
    "oci-mi300x-2node-16gpu-allreduce": Source("mi300x-node", 16),
    "aac14-mi355x-2node-16gpu-allreduce": Source(MI355X, 16),
    "vultr-mi355x-2node-16gpu-alltoall": Source(MI355X, 16),
}
# what a record's hardware calls a GPU, and how names of files of measured rows begin
_OF_GPU = {
    "GB300": "gb300-nvl72", "GB200": "gb200-nvl72", "B300": "dgx-b300", "B200": "dgx-b200",
    "H200": "hgx-h200", "H100": "dgx-h100", "A100": "dgx-a100", "MI300X": "mi300x-node",
    "MI325X": "mi325x-node", "L40S": "l40s-server",
}  # fmt: skip
_MEASURED = ("op_name", "nccl_dtype", "num_gpus", "message_size", "latency")
_ITEMSIZE = {"half": 2, "bfloat16": 2, "float": 4, "int8": 1}
_FAULTS = ("degraded", "edited by its author")
# what comes of figures that are null, in words, or left out
_UNREADABLE = (KeyError, TypeError, ValueError, IndexError, AttributeError, StopIteration,
               ArithmeticError)  # fmt: skip
_TYPES = {"allreduce": "all_reduce", "allgather": "all_gather", "alltoall": "all_to_all",
          "reducescatter": "reduce_scatter", "broadcast": "broadcast"}  # fmt: skip
_RANGES = (("all", 1, 1 << 62), (">= 16 MiB", 1 << 24, 1 << 62), ("1 to 16 MiB", 1 << 20, 1 << 24),
           ("< 1 MiB", 1, 1 << 20))  # fmt: skip
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def main() -> None:
    given = [Path(text) for text in sys.argv[1:] if not text.startswith("--")]
    for path in given:
        if path.suffix == ".parquet":
            compare_measured(path)
    given = [path for path in given if path.suffix != ".parquet"]
    if not given and any(text.endswith(".parquet") for text in sys.argv):
        return
    records: dict[str, dict[str, Any]] = {}
    for path in given or [SHARED / "published" / name for name in FILES]:
        for number, one in enumerate(json.loads(gzip.decompress(path.read_bytes()))["records"]):
            name = str(one.get("id") or f"{path.name} {number}")
            records[name] = one | {"id": name}
    quoted = {one["id"]: quoted_table(one) for one in json.loads(QUOTED.read_text())["records"]}
    titles = "".join(f"{title:>12}" for title, *_ in _RANGES)
    print(f"mean absolute error in %, of all sizes and of ranges of them\n\n{'':18}{titles}")
    sums: dict[str, list[tuple[int, float]]] = {}
    compared: dict[str, Source] = {}
    left: dict[str, str] = {}
    for name in [*(one for one in COMPARED if one in records),
                 *(one for one in records if one not in COMPARED)]:  # fmt: skip
        try:
            compared[name] = source_of(records[name])
        except NotComparedError as reason:
            left[name] = str(reason)
    for name, source in compared.items():
        compare(name, source, {one: records[one] for one in compared}, quoted, sums)
    print("\nall sizes of all sources that nothing was fitted to:")
    for what, errors in sums.items():
        print(row_of(what, errors))
    print(f"\nnot compared, {len(left)} of {len(records)} records:")
    for name in sorted(left):
        print(f"  {name}: {left[name]}")
    print("\nRepeated runs of one table differ by 1 to 3 %,")
    print("tables of one type of machine by 3 to 20 %.")


class NotComparedError(Exception):
    """Why a record is not compared."""


def source_of(record: dict[str, Any]) -> Source:
    """Give how a record is compared: if it is not listed, on the system of its GPU.

    - Raises NotComparedError if it is not.
    """
    source = COMPARED.get(record["id"]) or _source_of_gpu(record)
    try:
        table_of(record, source.ranks)
        nadi.load_system(source.system, source.ranks)
    except (nadi.NadiError, *_UNREADABLE) as error:
        raise NotComparedError(f"no times by size, or no such system ({error})") from None
    return source


def _source_of_gpu(record: dict[str, Any]) -> Source:
    hardware = record.get("hardware")
    if any(one in str(record.get("notes")) for one in _FAULTS):
        raise NotComparedError("its fault is known")
    if not isinstance(hardware, dict):
        raise NotComparedError(f"its hardware is in words: {hardware}")
    gpu, ranks = str(hardware.get("gpu")), hardware.get("n_gpus")
    system = next((name for part, name in _OF_GPU.items() if part in gpu), "")
    if not system:
        raise NotComparedError(f"no system file of {gpu}, {hardware.get('inter_node')}")
    if not isinstance(ranks, int) or ranks < 2:
        raise NotComparedError(f"{ranks} is no number of GPUs")
    network = f"{hardware.get('inter_node')} {hardware.get('nics')}"
    if re.search("EFA|TCPX", network):
        raise NotComparedError(f"no system file of {gpu} with {network}")
    return Source(system, ranks)


def compare_measured(path: Path) -> None:
    """Print the errors of a table of measured rows, by collective and number of GPUs."""
    system = next((name for part, name in _OF_GPU.items()
                   if path.name.startswith(part.lower())), "")  # fmt: skip
    table = pl.read_parquet(path)
    if not system or not set(_MEASURED) <= set(table.columns):
        print(f"{path.name}: not compared, no system file or other columns")
        return
    print(f"{path.name}: {system}{''.join(f'{title:>12}' for title, *_ in _RANGES)}")
    errors: dict[str, list[tuple[int, float]]] = {}
    known = table.drop_nulls(_MEASURED).filter(pl.col("latency") > 0)
    left = Counter({"no size or time": table.height - known.height})
    for (op, dtype, ranks), rows in known.group_by("op_name", "nccl_dtype", "num_gpus"):
        op, ranks = str(op).replace("_", ""), int(float(str(ranks)))
        if op not in _TYPES or dtype not in _ITEMSIZE or ranks < 2:
            left[f"{op} of {dtype} among {ranks}"] += rows.height
            continue
        try:
            machine = nadi.load_system(system, ranks)
        except nadi.NadiError as error:
            left[str(error)] += rows.height
            continue
        items = rows["message_size"].to_list()
        sizes = [max(size * _ITEMSIZE[str(dtype)], ranks) for size in items]
        for row, time in zip(
            nadi.simulation.estimate_collectives(machine, _TYPES[op], sizes), rows["latency"],
            strict=True,
        ):  # fmt: skip
            error = row.size, abs(row.time_ns / (time * 1e6) - 1) * 100
            for what in (f"{_TYPES[op]} {ranks}", "all"):
                errors.setdefault(what, []).append(error)
    for what in sorted(errors):
        print(row_of(what, errors[what]))
    for what, count in left.items():
        if count:
            print(f"  {count} rows not compared: {what}")


def compare(
    name: str, source: Source, records: dict[str, dict[str, Any]],
    quoted: dict[str, MeasuredCollective], sums: dict[str, list[tuple[int, float]]],
) -> None:  # fmt: skip
    """Print the errors of one source, and add them to the sums if nothing was fitted to it."""
    record = records[name]
    table = table_of(record, source.ranks)
    system = with_version(nadi.load_system(source.system, source.ranks), record)
    tables = {"": system}
    if source.beside in records or source.beside in quoted:
        other = quoted.get(source.beside) or table_of(records[source.beside], source.ranks)
        tables["measured"] = nadi.simulation.with_tables(system, (other,))
    same_host = source.beside in quoted or COMPARED.get(source.beside, source).host != Host()
    mark = " (fitted to it)" if source.fitted else ""
    missing = len(record["rows"]) - len(table.sizes)
    mark += f", {missing} rows without a size of a byte per rank, or a time" if missing else ""
    print(f"{name}: {Path(source.system).stem}, {source.ranks} ranks{mark}")
    found: dict[str, Sequence[float]] = {}
    for kind, machine in tables.items():
        rows = nadi.simulation.estimate_collectives(machine, table.collective, table.sizes)
        host = source.host._replace(before=0.0) if kind and same_host else source.host
        alone = [row.time_ns for row in rows]
        found[kind or "Nadi"] = host.added(alone, source.ranks)
        if not (kind or source.fitted or system.nccl.gpu):
            without = errors_of(table, alone)
            sums.setdefault("Nadi, kernel only", []).extend(without)
        if not kind and rows[0].modeled_ns >= 0:
            model = "RCCL's model" if system.nccl.gpu else "NCCL's model"
            found = {model: [row.modeled_ns for row in rows], **found}
    for what, times in found.items():
        errors = errors_of(table, times)
        print(row_of(what, errors))
        if not source.fitted:
            amd = ", AMD" if system.nccl.gpu else ""
            sums.setdefault(f"{what}{amd}", []).extend(errors)
            if what == "measured":  # nothing but how far two tables are apart
                there = [one for one in errors if one[0] in other.sizes]
                sums.setdefault("measured, its rows", []).extend(there)
    if "--all" in sys.argv:
        for size, measured, *times in zip(table.sizes, table.times, *found.values(), strict=True):
            texts = "".join(f"{time / measured:10.2f}" for time in times)
            print(f"  {size:>14,} B {measured / 1000:12.1f} us{texts}")


def errors_of(table: MeasuredCollective, times: Sequence[float]) -> list[tuple[int, float]]:
    """Give sizes, and absolute errors in %."""
    return [
        (size, abs(time / measured - 1) * 100)
        for size, time, measured in zip(table.sizes, times, table.times, strict=True)
    ]


def row_of(what: str, errors: Sequence[tuple[int, float]]) -> str:
    """Write the mean errors of each range of sizes."""
    cells = []
    for _, low, high in _RANGES:
        some = [error for size, error in errors if low <= size < high]
        cells.append(f"{np.mean(some):12.1f}" if some else f"{'-':>12}")
    return f"  {what:<18}{''.join(cells)[2:]}"


def with_version(system: Any, record: dict[str, Any]) -> Any:
    """Give a system the version of NCCL that a record states, if its model is known."""
    stated = re.match(r"2\.(\d+)\.\d+", str(record.get("nccl_version")))
    if not stated or int(stated[1]) < 18 or system.nccl.gpu:
        return system
    nccl = msgspec.structs.replace(system.nccl, version=stated[0])
    return msgspec.structs.replace(system, nccl=nccl)


def table_of(record: dict[str, Any], ranks: int) -> MeasuredCollective:
    """Give the sizes and times of a record, out of place where it has both."""
    collective = comm_type_of(record)
    factor = 2 * (ranks - 1) / ranks if collective == "all_reduce" else (ranks - 1) / ranks
    pairs = []
    for row in record["rows"]:
        try:
            size, time = _size_and_time(row, factor)
        except _UNREADABLE:
            continue
        if size >= ranks and 0 < time < np.inf:
            pairs.append((size, time * 1000))
    if not pairs:
        raise ValueError("no row has a size and a time")
    sizes, times = zip(*sorted(pairs), strict=True)
    nodes = max(ranks // 8, 1)  # looked at for machines with nodes of 8 only
    return MeasuredCollective(collective, ranks, nodes, sizes, times, record["id"])


def _size_and_time(row: Any, factor: float) -> tuple[int, float]:
    """Read a row: bytes, and us; ``factor`` is of bus bandwidth to that of the algorithm."""
    if isinstance(row, dict):
        return int(row["size_bytes"]), float(row["oop"]["time_us"])
    size = size_of(row[0])
    if len(row) == 4 and "GBps" not in row[1]:  # of nccl-tests: size, time, bandwidths
        return size, float(row[1])
    return size, size * factor / float(row[1].removesuffix("GBps")) / 1000


def quoted_table(record: dict[str, Any]) -> MeasuredCollective:
    """Give the sizes and times of a quoted table, of one node."""
    sizes, times = zip(*record["rows"], strict=True)
    in_ns = tuple(time * 1000.0 for time in times)
    return MeasuredCollective(record["collective"], record["ranks"], 1, sizes, in_ns, record["id"])


def size_of(label: str) -> int:
    """Read the label of a size; those of one page are rounded: 65K is 2^16, 132K 2^17."""
    found = re.fullmatch(r"([\d.]+)([KMG]?)(iB)?", label.replace("_", ""))
    if not found:
        raise ValueError(label)
    size = float(found[1]) * _UNITS[found[2]]
    near = 2 ** round(float(np.log2(size)))
    return int(near if found[2] else size)


def comm_type_of(record: dict[str, Any]) -> str:
    """Give the type of collective, which records write in their own way."""
    stated = str(record["collective"]).lower().replace("_", "").replace("-", "")
    return next(ours for theirs, ours in _TYPES.items() if theirs in stated)


if __name__ == "__main__":
    main()
