"""What ASTRA-sim's statistics say of each rank, against Nadi's accounts of the same simulation.

Usage: python verification/rank_times.py [CASES.json.gz ...] [--traces DIR] [--all]

Some cases state statistics beside the finish: for each rank how long it communicated and
computed, and how long it did both. Each figure has to equal Nadi's to the nanosecond. Of every
case that is simulated, what Nadi says a rank did has to add up to its finish. These are the cases
with statistics and a third of the others, with --all every case.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from pathlib import Path

import polars as pl
from _report import Checks
from astra_sim import given_paths, is_at_hand, system_of, traces_of, unpack_all

import nadi
from nadi.simulation.accounts.times import PARTITION

_COLUMNS = {
    "Wall time": "finish",
    "Comm time": "communicating",
    "GPU time": "computing",
    "Total compute-communication overlap": "overlapped",
}


EVERY = 1 if "--all" in sys.argv else 3


def check_file(path: Path, folder: Path, checks: Checks) -> None:
    equal = dict.fromkeys(_COLUMNS, 0)
    number = dict.fromkeys(_COLUMNS, 0)
    adds_up = simulated = 0
    for place, case in enumerate(json.loads(gzip.decompress(path.read_bytes()))["cases"]):
        if not is_at_hand(case, folder) or (place % EVERY and not case["result"].get("stats")):
            continue
        try:
            done = nadi.simulate(traces_of(case, folder), system_of(case, folder))
        except nadi.NadiError:
            continue  # astra_sim.py says which
        table = nadi.simulation.rank_times(done)
        sums = table.select(pl.sum_horizontal(PARTITION)).to_series()
        simulated += 1
        adds_up += sums.to_list() == done.cycles.tolist()
        for rank, figures in case["result"].get("stats", {}).items():
            row = table.row(int(rank), named=True)
            for name in figures.keys() & _COLUMNS.keys():
                number[name] += 1
                equal[name] += row[_COLUMNS[name]] == int(figures[name])
    what = path.name.removesuffix(".json.gz")
    checks.add_many(f"{what}: the time of every rank adds up to its finish", adds_up, simulated)
    for name in _COLUMNS:
        if number[name]:
            checks.add_many(f"{what}: {name} of a rank", equal[name], number[name])


def main() -> None:
    sys.argv = [one for one in sys.argv if one != "--all"]
    paths, traces = given_paths()
    checks = Checks()
    with tempfile.TemporaryDirectory() as unpacked:
        folder = traces or Path(unpacked)
        if traces is None:
            unpack_all(
                sorted({archive for p in paths for archive in p.parent.glob("*.tar.gz")}), folder
            )
        for path in paths:
            if not path.is_dir():  # a folder of single cases states no statistics
                check_file(path, folder, checks)
    checks.finish()


if __name__ == "__main__":
    main()
