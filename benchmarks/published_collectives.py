"""Published measurements of collectives, and what the systems that come with Nadi predict.

Nothing is fitted to these figures: it is said how far they are off. Only measurements on machines
that Nadi has are compared; the others are listed with the reason.

    python benchmarks/published_collectives.py [--all]

Prints the rows that stand in docs/systems.md, and for each record how far all of its sizes are off;
with --all every size.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
from typing import Any

from _measure import SHARED

import nadi

# records by id: the system, and the sizes that are shown
COMPARED: dict[str, tuple[str, tuple[int, ...]]] = {
    "oci-h100-2node-16gpu-allreduce": ("dgx-h100", (1 << 30, 1 << 34)),
    "coreweave-gb200-nvl72-1rack-72gpu-allreduce": ("gb200-nvl72", (1 << 29, 1 << 33)),
    "coreweave-a100-80g-32gpu-2023-allreduce-largesizes": ("dgx-a100", (1 << 29, 1 << 33)),
    "oci-a100-40g-2node-16gpu-allreduce-2024": ("dgx-a100", (8, 1 << 18, 1 << 26, 1 << 33)),
    "oci-a100-40g-2node-16gpu-allreduce-2025": ("dgx-a100", ()),
    "oci-a100-40g-2node-16gpu-allreduce-2026-slurm": ("dgx-a100", ()),
    "oci-a100-40g-2node-16gpu-allreduce-2026-slurm-operator": ("dgx-a100", ()),
    "gcp-a3ultra-h200-2node-16gpu-allgather-ctk": ("hgx-h200", (1 << 18, 1 << 26, 1 << 33)),
}
_TYPES = {"allreduce": "all_reduce", "allgather": "all_gather"}


def main() -> None:
    path = SHARED / "published" / "collectives_nccl_rccl_tests.json.gz"
    records = {one["id"]: one for one in json.loads(gzip.decompress(path.read_bytes()))["records"]}
    print("| system | ranks | collective | bytes | measured | predicted | predicted / measured |")
    print("|---|---|---|---|---|---|---|")
    summaries = []
    for name, (system_name, shown) in COMPARED.items():
        record = records[name]
        ranks = int(record["hardware"]["n_gpus"])
        system = nadi.load_system(system_name, ranks)
        comm_type = comm_type_of(record)
        ratios: dict[str, list[float]] = {"below 1 MiB": [], "from 256 MiB": [], "between": []}
        for row in record["rows"]:
            size, measured = int(row["size_bytes"]), float(row["oop"]["time_us"])
            given = size // ranks if comm_type == "all_gather" else size
            if given == 0:
                continue
            predicted = nadi.simulator.collective_time(system, comm_type, given) / 1000
            which = "below 1 MiB" if size < 1 << 20 else "between"
            ratios["from 256 MiB" if size >= 1 << 28 else which].append(predicted / measured)
            if size in shown or "--all" in sys.argv:
                print(
                    f"| `{system_name}` | {ranks} | {comm_type} | {size:,} | {text_of(measured)} "
                    f"| {text_of(predicted)} | {predicted / measured:.2f} |"
                )
        summaries.append((name, {kind: found for kind, found in ratios.items() if found}))
    print("\npredicted / measured, geometric mean over sizes (smallest, largest):")
    for name, ratios in summaries:
        parts = [
            f"{kind} {math.exp(sum(map(math.log, found)) / len(found)):.2f} "
            f"({min(found):.2f}, {max(found):.2f}; {len(found)} sizes)"
            for kind, found in ratios.items()
        ]
        print(f"  {name}: {', '.join(parts)}")
    left = sorted(set(records) - set(COMPARED))
    print(
        f"\nnot compared, {len(left)} of {len(records)} records, on machines that Nadi has no file"
    )
    print("of, or whose switches reduce, or whose fault is known:")
    for name in left:
        hardware = records[name]["hardware"]
        print(f"  {name}: {hardware.get('gpu')}, {hardware.get('inter_node')}")


def comm_type_of(record: dict[str, Any]) -> str:
    """Give the type of collective, which records write in their own way."""
    stated = str(record["collective"]).lower().replace("_", "").replace("-", "")
    return next(ours for theirs, ours in _TYPES.items() if theirs in stated)


def text_of(micros: float) -> str:
    """Write a time with four digits."""
    return f"{micros / 1000:.4g} ms" if micros >= 1000 else f"{micros:.4g} us"


if __name__ == "__main__":
    main()
