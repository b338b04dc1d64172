"""The graphs of simulated jobs, of all golden cases of ASTRA-sim: they say why it took so long.

Usage: python verification/simulated_graphs.py [CASES.json.gz ...] [--traces DIR]

Of every case that can be simulated: replaying its graph gives every simulated time back with
no delay that is not explained, and the critical path has no gaps and is as long as the job.
Cases are those of verification/astra_sim.py, whether ASTRA-sim fails there or not.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from pathlib import Path

from _report import SHARED, Checks
from astra_sim import is_at_hand, system_of, traces_of, unpack_all

import nadi

_FOLDER = SHARED / "golden" / "astra"


def check_file(path: Path, folder: Path, checks: Checks) -> None:
    identity, explained, paths = [], [], []
    for case in json.loads(gzip.decompress(path.read_bytes()))["cases"]:
        if not is_at_hand(case, folder):
            continue
        try:
            done = nadi.simulate(traces_of(case, folder), system_of(case, folder))
        except nadi.NadiError:
            continue
        replay = nadi.graph.replay_graph(nadi.simulation.simulated_graph(done))
        identity.append(bool((replay.time == replay.graph.time).all()))
        explained.append(not replay.graph.delay.any())
        critical = nadi.critical_path(replay, nadi.graph.choose_window(replay.graph, []))
        paths.append(critical.length == done.makespan)
        if not (identity[-1] and explained[-1] and paths[-1]):
            print(f"     {path.name} case {case.get('id', '')} {case.get('name', '')}")
    name = path.name.removesuffix(".json.gz")
    for what, results in (
        ("replay gives the simulated times", identity), ("nothing is unexplained", explained),
        ("the path is as long as the job", paths),
    ):  # fmt: skip
        checks.add_many(f"{name}: {what}", sum(results), len(results))


def main() -> None:
    given = [Path(argument) for argument in sys.argv[1:]]
    folder = None
    if Path("--traces") in given:
        at = given.index(Path("--traces"))
        folder = given[at + 1]
        del given[at : at + 2]
    checks = Checks()
    with tempfile.TemporaryDirectory() as temporary:
        if folder is None:
            folder = Path(temporary)
            unpack_all(sorted(_FOLDER.glob("*.tar.gz")), folder)
        for path in given or sorted(_FOLDER.glob("*.json.gz")):
            check_file(path, folder, checks)
    checks.finish()


if __name__ == "__main__":
    main()
