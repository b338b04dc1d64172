"""What ASTRA-sim says on stated inputs, against what Nadi says in its compatible mode.

Usage: python verification/astra_sim.py [CASES.json.gz | FOLDER ...] [--traces DIR]

Each case states a network, a system, remote memory, process groups and a workload, and when
ASTRA-sim had finished each rank. A case counts where it ended without a fault: exit code 0,
every rank finished, and no time that comes from arithmetic with infinities. There, every
rank's finish has to equal Nadi's to the nanosecond. Where ASTRA-sim fails, Nadi gives an
answer of its own or an error; these are counted by name and kind. Two cases use traces of
ASTRA-sim's examples for their collective; they are checked if DIR holds these too.

A FOLDER holds a folder for each case: the files that ASTRA-sim was started with, named from
FOLDER, options in ``case.json``, and in ``RESULT.txt`` when each rank finished and how long it
communicated exposed, both of which have to be equal.

Traces are taken from the archives beside the cases (or unpacked in DIR); of collectives that
have no trace there, which differ in type and size only, one is written as Chakra's JSON.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import sys
import tempfile
from collections import Counter
from contextlib import chdir
from functools import cache
from pathlib import Path
from typing import Any

from _report import SHARED, Checks, unpack

import nadi

_FOLDER = SHARED / "golden" / "astra"
_CASES = SHARED / "golden" / "astra_minimal"
_RESULT = re.compile(r"ASTRA-sim (\[.*?\]) exposed (\[.*?\]) rc 0")
_TYPES = {"all_reduce": 0, "all_gather": 2, "all_to_all": 6, "reduce_scatter": 7}
_LARGEST = 2**62  # ns; what is more comes from dividing by zero
# what the workloads of ASTRA-sim's own examples are, whose files are not at hand
_EXAMPLES = {
    "all_reduce/8npus_1MB": ("all_reduce", 1 << 20),
    "all_gather/16npus_1MB": ("all_gather", 1 << 20),
    "reduce_scatter/4npus_1MB": ("reduce_scatter", 1 << 20),
}


def own_traces_of(case: dict[str, Any], folder: Path) -> dict[str, list[str]]:
    """Give where the traces of collectives are that have some of their own, by setting."""
    return {
        key: [str(folder / prefix) for prefix in value]
        for key, value in case["system"].items()
        if key.endswith("-custom")
    }


def is_at_hand(case: dict[str, Any], folder: Path) -> bool:
    """Tell whether the traces that collectives have of their own are there."""
    own = own_traces_of(case, folder).values()
    return all(Path(f"{prefix}.0.et").exists() for prefixes in own for prefix in prefixes)


def system_of(case: dict[str, Any], folder: Path) -> nadi.systems.System:
    system = case["system"] | own_traces_of(case, folder)
    return nadi.systems.astra_sim_system(
        case["network"], system, case.get("remote_memory"), case.get("comm_group"), options_of(case)
    )


def options_of(case: dict[str, Any]) -> nadi.systems.AstraSimOptions:
    stated = case.get("cli") or {}
    return nadi.systems.AstraSimOptions(
        congestion=case.get("backend") == "congestion_aware",
        queues=int(stated.get("num-queues-per-dim", 1)),
        rendezvous=stated.get("rendezvous-protocol") == "true",
        injection_scale=float(stated.get("injection-scale", 1)),
    )


def collective_of(case: dict[str, Any]) -> tuple[str, int]:
    """Give the type and size of the one collective that every rank of a case does."""
    workload, name = case.get("workload"), case.get("name") or ""
    if isinstance(workload, dict) and "collective" in workload:
        return workload["collective"], workload["comm_size"]
    if isinstance(workload, dict):
        return next(what for key, what in _EXAMPLES.items() if key in workload["et"])
    for kind in _TYPES:
        if kind in name:
            return kind, int(name.rsplit("_", 1)[1])
    return "all_reduce", 1 << 20


@cache
def read(path: Path) -> nadi.Trace:
    return nadi.read(path)


@cache
def written(kind: str, size: int, folder: Path) -> nadi.Trace:
    """Write a trace of one collective, and read it."""
    attributes = [
        {"name": "is_cpu_op", "boolVal": False},
        {"name": "comm_type", "int64Val": str(_TYPES[kind])},
        {"name": "comm_size", "int64Val": str(size)},
    ]
    node = {"id": "0", "name": kind, "type": "COMM_COLL_NODE", "attr": attributes}
    path = folder / f"{kind}_{size}.json"
    path.write_text(json.dumps({"globalMetadata": {"version": "0.0.4"}, "nodes": [node]}))
    return nadi.read(path)


def traces_of(case: dict[str, Any], folder: Path) -> list[nadi.Trace]:
    num_ranks = math.prod(case["network"]["npus_count"])
    if "trace" in case:
        inside = folder / case["trace"].removesuffix(".tar.gz").removeprefix("llm_")
        return [read(inside / f"workload.{rank}.et") for rank in range(num_ranks)]
    workload = case.get("workload")
    prefix = case.get("et") or (workload.get("et", "") if isinstance(workload, dict) else "")
    files = [folder / f"{prefix}.{rank}.et" for rank in range(num_ranks)]
    if prefix and all(file.exists() for file in files):
        return [read(file) for file in files]
    if case.get("nodes_per_rank") is not None:
        raise FileNotFoundError(f"{prefix}.*.et is not in {folder}")
    return [written(*collective_of(case), folder)] * num_ranks


def expected_of(case: dict[str, Any]) -> list[int] | None:
    """Give ASTRA-sim's finish of every rank; None where it did not end well."""
    result, num_ranks = case["result"], math.prod(case["network"]["npus_count"])
    cycles = result.get("cycles")
    if result.get("rc", 0) != 0 or cycles is None:
        return None
    if isinstance(cycles, dict):
        cycles = [cycles.get(str(rank), -1) for rank in range(num_ranks)]
    elif isinstance(cycles, int):
        cycles = [cycles] * num_ranks
    return cycles if all(0 <= cycle < _LARGEST for cycle in cycles) else None


def exposed_of(case: dict[str, Any]) -> list[int] | None:
    exposed = case["result"].get("exposed")
    if isinstance(exposed, int):
        return [exposed] * math.prod(case["network"]["npus_count"])
    return exposed if isinstance(exposed, list) else None


def kind_of(case: dict[str, Any]) -> str:
    """Say of which kind a case is: its set, or its name without numbers."""
    if "set" in case or "name" not in case:
        return f"{case.get('set', 'GPT traces')}, {case['backend'].removeprefix('congestion_')}"
    return case["backend"].removeprefix("congestion_")


class Faults:
    """What Nadi says where ASTRA-sim fails."""

    def __init__(self) -> None:
        self.answers: Counter[tuple[str, str]] = Counter()

    def add(self, case: dict[str, Any], said: str) -> None:
        """Count what is said to a case."""
        code = case["result"].get("rc", 0)
        fault = f"exit code {code}" if code else "ranks that never finish, or no finite time"
        self.answers[fault, said] += 1

    def print(self) -> None:
        """Print the counts, highest first."""
        print(f"\nwhere ASTRA-sim fails ({sum(self.answers.values())} cases), Nadi gives")
        for (fault, said), count in sorted(self.answers.items(), key=lambda item: -item[1]):
            print(f"{count:5} {fault}: {said}")


def said_of(error: nadi.NadiError) -> str:
    """Shorten an error to what is the same in many cases."""
    text = "".join("N" if c.isdigit() else c for c in error.what)
    return f"error: {text.split(',')[0][:70]}"


def check_file(path: Path, folder: Path, checks: Checks, faults: Faults) -> None:
    found: dict[str, list[int]] = {}
    wrong: list[str] = []
    for number, case in enumerate(json.loads(gzip.decompress(path.read_bytes()))["cases"]):
        expected = expected_of(case)
        if not is_at_hand(case, folder):
            print(
                f"     case {case.get('id', number)}: its collective's own traces are not at hand"
            )
            continue
        try:
            done = nadi.simulate(traces_of(case, folder), system_of(case, folder))
        except nadi.NadiError as error:
            got, exposed, said = None, None, said_of(error)
        else:
            got, exposed, said = (
                done.cycles.tolist(),
                nadi.simulation.exposed_times(done).tolist(),
                "an answer",
            )
        if expected is None:
            faults.add(case, said)
            continue
        exact = got == expected and exposed_of(case) in (None, exposed)
        found.setdefault(kind_of(case), []).append(exact)
        if not exact:
            what = said if got is None else f"{got[:4]} for {expected[:4]}"
            wrong.append(f"     case {case.get('id', number)} {case.get('name', '')}: {what}")
    for kind, results in sorted(found.items()):
        name = path.name.removesuffix(".json.gz")
        checks.add_many(f"{name}: {kind}", sum(results), len(results))
    print("\n".join(wrong[:20]) + ("\n" if wrong else ""), end="")


def check_folders(path: Path, checks: Checks) -> None:
    """Check the cases that are folders of files."""
    exact = []
    for case in sorted(folder for folder in path.iterdir() if folder.is_dir()):
        stated = json.loads((case / "case.json").read_text())
        groups = case / "groups.json"
        with chdir(path):
            system = nadi.systems.load_astra_sim_system(
                case / "network.yml", case / "system.json", case / "memory.json",
                groups if groups.exists() else None, options_of(stated),
            )  # fmt: skip
            done = nadi.simulate(nadi.recordings.read_ranks(case / "w"), system)
        got = [done.cycles.tolist(), nadi.simulation.exposed_times(done).tolist()]
        found = _RESULT.search((case / "RESULT.txt").read_text())
        expected = [json.loads(text) for text in found.groups()] if found else None
        exact.append(got == expected)
        if not exact[-1]:
            print(f"     case {case.name}: {got} for {expected}")
    checks.add_many(path.name, sum(exact), len(exact))


def unpack_all(archives: list[Path], folder: Path) -> None:
    for archive in archives:
        unpack(archive, folder)


def given_paths() -> tuple[list[Path], Path | None]:
    """Read the command line: files or folders of cases, and where traces are unpacked already."""
    given = sys.argv[1:]
    traces = None
    if "--traces" in given:
        at = given.index("--traces")
        traces = Path(given[at + 1])
        del given[at : at + 2]
    standard = [*sorted(_FOLDER.glob("*.json.gz")), _CASES]
    return [Path(name) for name in given] or standard, traces


def main() -> None:
    paths, traces = given_paths()
    checks, faults = Checks(), Faults()
    with tempfile.TemporaryDirectory() as unpacked:
        folder = traces or Path(unpacked)
        if traces is None:
            unpack_all(
                sorted({archive for p in paths for archive in p.parent.glob("*.tar.gz")}), folder
            )
        for path in paths:
            if path.is_dir():
                check_folders(path.resolve(), checks)
            else:
                check_file(path, folder, checks, faults)
    faults.print()
    checks.finish()


if __name__ == "__main__":
    main()
