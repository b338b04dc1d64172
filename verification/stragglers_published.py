"""Slowdown by stragglers of operation tables, against published results (arXiv 2505.05713).

Usage: python verification/stragglers_published.py [FOLDER]

By default the folder is ``field/straggler`` with ByteDance's job SE of 128 ranks: its table of
operations (``trace-SE.parquet``), and what their own program printed for it. S of the job, types of
operations, stages, data-parallel ranks and steps, M_W and M_S, and times are equal to 1e-5.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import polars as pl
from _report import SHARED, Checks

import nadi

CLOSE = 1e-5


def main() -> None:
    checks = Checks()
    folder = Path(sys.argv[1]) if sys.argv[1:] else SHARED / "field" / "straggler"
    for file in sorted(folder.glob("trace-*.parquet")):
        check(file, checks)
    checks.finish()


def check(file: Path, checks: Checks) -> None:
    name = file.stem.removeprefix("trace-")
    found = nadi.analyses.analyze("slowdown", file)
    mw, ms, result = (
        json.loads((file.parent / f"{one}-{name}.json").read_text())
        for one in ("mw", "ms", "result")
    )
    rows = {key: found.filter(group=key) for key in found["group"].unique()}
    of_job, slowest, last = (rows[key].row(0, named=True)
                             for key in ("job", "slowest ranks", "last stage"))  # fmt: skip

    def one(what: str, own: float, published: float) -> None:
        close = abs(own - published) <= CLOSE * max(abs(published), 1.0)
        checks.add(f"{name}: {what}", close, f"{own:.6f}, published {published:.6f}")

    one("S", of_job["slowdown"], result["blocking_slowdown"])
    one("M_W", slowest["gain_percent"] / 100, mw["Mw"])
    one("M_S", last["gain_percent"] / 100, ms["Ms"])
    one("ideal step, s", of_job["ideal_ns"] / 1e9, mw["tideal"])
    one("step without the slowest ranks, s", slowest["ideal_ns"] / 1e9, mw["trem"])
    one("step without the last stage, s", last["ideal_ns"] / 1e9, ms["trem"])
    one("only the slowest ranks, s", slowest["slowdown"] * mw["tideal"], mw["tadd"])
    steps = rows["step"].sort(pl.col("name").cast(pl.Int64))
    own = dict(steps.select("name", pl.col("slowdown") * pl.col("ideal_ns") / 1e9).iter_rows())
    many(checks, f"{name}: steps, s", own, result["step_t_nodelay"])
    for group, key in (
        ("operation", "blocking_decompose_by_optype"), ("stage", "blocking_decompose_by_stage"),
        ("dp rank", "blocking_decompose_by_dp_rank"), ("step", "blocking_step_slowdown"),
    ):  # fmt: skip
        own = dict(rows[group].select("name", "slowdown").iter_rows())
        many(checks, f"{name}: S by {group}", own, result[key])


def many(checks: Checks, what: str, own: dict[str, float], published: dict[str, float]) -> None:
    close = [abs(own.get(key, 0.0) - value) <= CLOSE * value for key, value in published.items()]
    checks.add_many(what, sum(close), len(published))


if __name__ == "__main__":
    main()
