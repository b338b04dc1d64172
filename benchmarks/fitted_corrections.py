"""Where the corrections of NCCL's model come from: each fit again, and beside what files state.

Nothing is fitted to a table that published_collectives.py has in its sums. Of the ranges below and
above 1 MiB the first gives launch, steps and hops, the second ramp and efficiency.

    python benchmarks/fitted_corrections.py

Prints each fitted figure, the mean error in % that is left, and that of each table when the fit
leaves it out.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from _measure import SHARED
from published_collectives import A3_MEGA, FILES, QUOTED, quoted_table, table_of

import nadi
from nadi.systems.nccl.measured import MeasuredCollective
from nadi.systems.nccl.nccl_estimates import nccl_estimates
from nadi.systems.system import System

SMALL, LARGE = (1, 1 << 20), (1 << 20, 1 << 62)
VIDUR = "collectives_vidur_profiling.json.gz"
CONVERGED = 1.002


class Fit(NamedTuple):
    """Some corrections of a level of a system, and the tables that they are fitted to."""

    system: str
    level: str
    tables: tuple[str, ...]
    free: tuple[str, ...]  # names; several protocols or both directions change together with "+"
    sizes: tuple[int, int]


FITS = (
    Fit("dgx-a100", "node", ("vidur 4", "vidur 8"), ("launch", "steps.LL"), SMALL),
    Fit("dgx-a100", "node", ("vidur 4", "vidur 8"), ("ramp", "ramp_size"), LARGE),
    Fit("hgx-h200", "node", ("sglang-22734-h200-8gpu", "vllm-42324-sm90-8gpu"), ("steps.LL",),
        SMALL),
    Fit("hgx-h200", "node", ("vllm-42324-sm90-8gpu",), ("ramp", "ramp_size", "efficiency"), LARGE),
    Fit("dgx-b200", "node", ("vllm-37756-b300-6gpu",), ("steps.LL",), SMALL),
    Fit("dgx-b200", "node", ("gke-a4-b200-1node-8gpu-allreduce 8",),
        ("ramp", "ramp_size", "efficiency"), LARGE),
    Fit("dgx-a100", "nodes", ("coreweave-a100-80g-32gpu-ib-sharp-allreduce 32",),
        ("hops.LL", "hops.LL128"), SMALL),
    Fit(A3_MEGA, "nodes", ("gcp-a3mega-h100-2node-16gpu-allgather-ctk 16",),
        ("steps.Simple+hops.Simple",), (1, 1 << 15)),
    Fit(A3_MEGA, "nodes", ("gcp-a3mega-h100-2node-16gpu-allgather-ctk 16",),
        ("ramp", "ramp_size", "efficiency"), (1, 1 << 62)),
    Fit("dgx-h100", "nodes", ("gcp-a3ultra-h200-2node-16gpu-allgather-ctk 16",),
        ("ramp", "efficiency"), LARGE),
    Fit("hgx-h200", "nodes", ("oci-h100-2node-16gpu-allreduce 16",), ("efficiency",), LARGE),
    Fit("dgx-b200", "nodes", ("gcp-a4-b200-2node-16gpu-allreduce-dstack 16",),
        ("ramp", "ramp_size", "efficiency"), LARGE),
)  # fmt: skip


def main() -> None:
    tables = read_tables()
    print("system, level: figure fitted (as its file states)")
    for fit in FITS:
        system = nadi.load_system(fit.system, 8 if fit.level == "node" else 32)
        used = [tables[name] for name in fit.tables]
        found, error = fitted(system, fit, used)
        stated = corrections_of(system, fit.level)
        figures = [f"{name} {value_of(found, name):.3g} ({value_of(stated, name):.3g})"
                   for names in fit.free for name in names.split("+")]  # fmt: skip
        print(
            f"{Path(system.name).stem}, {fit.level}: {', '.join(figures)}; {error * 100:.1f} % left"
        )
        for at, name in enumerate(fit.tables):
            others = used[:at] + used[at + 1 :]
            if others:
                without, _ = fitted(system, fit, others)
                left = error_of(system, fit, [used[at]], without) * 100
                print(f"    {name}, fitted without it: {left:.1f} %")


def read_tables() -> dict[str, MeasuredCollective]:
    """Read what is fitted to, by name; published ones by their name and number of ranks."""
    tables = {one["id"]: quoted_table(one) for one in json.loads(QUOTED.read_text())["records"]}
    for file in (*FILES, VIDUR):
        for one in json.loads(gzip.decompress((SHARED / "published" / file).read_bytes()))[
            "records"
        ]:
            for fit in FITS:
                for name in fit.tables:
                    if name.partition(" ")[0] == one["id"]:
                        tables[name] = table_of(one, int(name.partition(" ")[2]))
            ranks = one.get("hardware", {}).get("n_gpus")
            if one["id"] == f"vidur-a100_dgx-all_reduce-n{ranks}-dpn{ranks}":
                tables[f"vidur {ranks}"] = profiled(one, ranks)
    return tables


def profiled(record: dict[str, Any], ranks: int) -> MeasuredCollective:
    """Give a profile of kernels: of each doubling of sizes the lower quartile of their minima.

    Ranks that enter late make kernels longer, so no time counts that a larger size undercuts.
    """
    doublings: dict[int, list[tuple[float, int]]] = {}
    for size, least, *_ in record["rows"]:
        doublings.setdefault(int(size).bit_length(), []).append((least * 1e6, int(size)))
    pairs = [sorted(group)[len(group) // 4] for _, group in sorted(doublings.items())]
    times = np.minimum.accumulate([time for time, _ in pairs][::-1])[::-1]
    sizes = tuple(size for _, size in pairs)
    return MeasuredCollective("all_reduce", ranks, 1, sizes, tuple(times.tolist()), record["id"])


def corrections_of(system: System, level: str) -> dict[str, Any]:
    """Give the corrections of a level as plain values."""
    assert system.nccl
    return dict(msgspec.to_builtins(getattr(system.nccl, level).corrections))


def value_of(corrections: dict[str, Any], name: str) -> float:
    """Read a figure, of a protocol where the name has one: ``steps.LL``."""
    key, _, protocol = name.partition(".")
    return float(corrections[key].get(protocol, 1.0) if protocol else corrections[key])


def changed(corrections: dict[str, Any], names: str, times: float) -> dict[str, Any]:
    """Multiply one figure, or several to the same value."""
    first, *_ = names.split("+")
    value = value_of(corrections, first) * times
    result = dict(corrections)
    for name in names.split("+"):
        key, _, protocol = name.partition(".")
        result[key] = {**result[key], protocol: value} if protocol else value
    return result


def error_of(
    system: System, fit: Fit, tables: Sequence[MeasuredCollective], corrections: dict[str, Any]
) -> float:  # fmt: skip
    """Give the mean absolute error of the logarithm of the times."""
    assert system.nccl
    level = getattr(system.nccl, fit.level)
    known = msgspec.convert(corrections, type(level.corrections))
    level = msgspec.structs.replace(level, corrections=known)
    settings = msgspec.structs.replace(system.nccl, **{fit.level: level})
    errors = []
    for table in tables:
        inside = [at for at, size in enumerate(table.sizes) if fit.sizes[0] <= size < fit.sizes[1]]
        sizes = np.array([table.sizes[at] for at in inside], dtype=np.int64)
        found = nccl_estimates(settings, table.collective, sizes, np.arange(table.ranks))
        for at, one in zip(inside, found, strict=True):
            errors.append(abs(np.log(one.time * 1000 / table.times[at])))
    return float(np.mean(errors))


def fitted(
    system: System, fit: Fit, tables: Sequence[MeasuredCollective]
) -> tuple[dict[str, Any], float]:  # fmt: skip
    """Search along one figure after the other, with steps that shrink, for the least error."""
    best = corrections_of(system, fit.level)
    least = error_of(system, fit, tables, best)
    factor = 1.3
    while factor > CONVERGED:
        tried = [
            changed(best, names, times) for names in fit.free for times in (factor, 1 / factor)
        ]
        errors = [error_of(system, fit, tables, one) for one in tried]
        if min(errors) < least - 1e-9:
            best, least = tried[int(np.argmin(errors))], min(errors)
        else:
            factor = 1 + (factor - 1) / 2
    return best, least


if __name__ == "__main__":
    main()
