"""Finish times of GOAL programs by LogGOPSim, against Nadi's LogGP model.

Usage: python verification/loggp.py [CASES.json.gz ...]

A case has a GOAL program, the model's parameters, and when each host finished: all of them, or of
more than 16 hosts the last one. Where LogGOPSim never ended, Nadi has to name an operation that
never ends. Each program is also written again and read back, which must not change a time.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from _report import SHARED, Checks

import nadi

_CASES = SHARED / "golden" / "loggopsim" / "cases.json.gz"
_PS = 1000


def machine_of(stated: dict[str, int]) -> nadi.simulation.LogGP:
    return nadi.simulation.LogGP(
        latency=stated["L"], overhead=stated["o"], gap=stated["g"],
        gap_per_byte=stated["G"] * _PS, overhead_per_byte=stated["O"] * _PS,
        eager_limit=stated["S"],
    )  # fmt: skip


def answer_of(path: Path, machine: nadi.simulation.LogGP) -> list[int] | None:
    """Give the finish of each rank, None if the program never ends."""
    try:
        program = nadi.files.read_goal(path)
        found: list[int] = nadi.simulation.loggp_times(program, machine).finish.tolist()
    except nadi.errors.PairError:
        return None
    return found


def holds(case: dict[str, Any], folder: Path) -> bool:
    path, again = folder / "program.goal", folder / "again.goal"
    path.write_text(case["goal"])
    nadi.files.write_goal(nadi.files.read_goal(path), again, overwrite=True)
    machine, result = machine_of(case["params"]), case["result"]
    found = answer_of(path, machine)
    if found != answer_of(again, machine):
        return False
    if result.get("not_finished"):
        return found is None
    if found is None or max(found) != result["max"]:
        return False
    return "finish" not in result or found == result["finish"]


def main() -> None:
    checks = Checks()
    for name in sys.argv[1:] or [_CASES]:
        kinds: defaultdict[str, list[str]] = defaultdict(list)
        wrong: defaultdict[str, list[str]] = defaultdict(list)
        with tempfile.TemporaryDirectory() as folder:
            for case in json.loads(gzip.decompress(Path(name).read_bytes()))["cases"]:
                kinds[case["kind"]].append(case["id"])
                if not holds(case, Path(folder)):
                    wrong[case["kind"]].append(case["id"])
        for kind, cases in kinds.items():
            bad = wrong[kind]
            checks.add_many(kind, len(cases) - len(bad), len(cases), ", ".join(bad))
    checks.finish()


if __name__ == "__main__":
    main()
