"""Critical paths by HTA's rules on a trace of many events: a real one, one copy after the other.

Usage: python benchmarks/hta_critical_path.py [COPIES]

22 copies are a million events. HTA itself takes 53.8 s for the path of 418,000
(../shared/peers/hta.md).
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _measure import SHARED, best_of

import nadi

SOURCE = SHARED / "traces" / "gpu_hta" / "ns_resolution.json.gz"
_GAP = 1000.0  # us between copies
_IDS = 1_000_000  # correlations of one copy are below


def write_copies(target: Path, copies: int) -> None:
    """Write the trace so many times, with other times, correlations and steps each time."""
    with gzip.open(SOURCE) as file:
        events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    work = [e for e in events if e["ph"] == "X" and e["cat"] != "Trace"]
    length = max(e["ts"] + e["dur"] for e in work) - min(e["ts"] for e in work) + _GAP
    with target.open("w") as file:
        file.write('{"schemaVersion":1,"traceEvents":[\n')
        for copy in range(copies):
            lines = (json.dumps(_moved(event, copy, length)) for event in events)
            file.write((",\n" if copy else "") + ",\n".join(lines))
        file.write("\n]}\n")


def _moved(event: dict[str, Any], copy: int, length: float) -> dict[str, Any]:
    moved = {**event, "ts": round(event["ts"] + copy * length, 3)}
    if "correlation" in event.get("args", {}):
        correlation = event["args"]["correlation"] + copy * _IDS
        moved["args"] = {**event["args"], "correlation": correlation}
    name, _, step = event["name"].partition("#")
    if name == "ProfilerStep":
        moved["name"] = f"{name}#{int(step) + 10 * copy}"
    return moved


def main() -> None:
    """Print a table."""
    copies = int(sys.argv[1]) if len(sys.argv) > 1 else 22
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "trace.json"
        write_copies(target, copies)
        begin = time.perf_counter()
        trace = nadi.read(target)
        reading = time.perf_counter() - begin
    path = nadi.analyses.hta_critical_path(trace)
    print(f"{trace.nodes.height:,} events, read in {reading:.2f} s")
    print(f"whole trace: {path.nodes.height:,} nodes, {path.edges.height:,} edges in "
          f"{best_of(lambda: nadi.analyses.hta_critical_path(trace)):.2f} s")  # fmt: skip
    step = best_of(
        lambda: nadi.analyses.hta_critical_path(trace, annotation="ProfilerStep", instance=1)
    )
    print(f"one step of it: {step:.2f} s")
    print(f"breakdown and summary: {best_of(lambda: path.summary()):.2f} s")


if __name__ == "__main__":
    main()
