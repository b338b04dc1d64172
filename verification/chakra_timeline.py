"""``nadi draw timeline`` against Chakra's timeline visualizer, at the right scale.

Usage: python verification/chakra_timeline.py [LOG ...]

The visualizer writes milliseconds where Chrome's format has microseconds: its times are 1,000 times
too small. Every slice has to have its rank and name, and exactly 1,000 times its begin and
duration. Without LOG the sample in ``../shared/data`` is taken, whose answer stands beside it.
Each log is also drawn at other clocks, and compared with exact fractions.
"""

from __future__ import annotations

import json
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

from _report import Checks, arguments

import nadi

CLOCKS = {"1GHz": 1000, "1.5GHz": 1500, "2GHz": 2000, "1410MHz": 1410, "700": 700}


def drawn(log: Path, clock: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "timeline.json"
        nadi.graph.draw_schedule(log, target, clock)
        events = json.loads(target.read_text())["traceEvents"]
    return sorted((e for e in events if e["ph"] == "X"), key=lambda e: (e["pid"], e["ts"]))


def by_hand(log: Path) -> list[tuple[int, str, int, int]]:
    """Give rank, name, first and last cycle of each node."""
    issued: dict[tuple[int, int], list[int]] = {}
    found = []
    for line in log.read_text().splitlines():
        word, npu, cycle, node, name = (part.split("=", 1)[-1] for part in line.split(",", 4))
        key = int(npu), int(node)
        if word == "issue":
            issued.setdefault(key, []).append(int(cycle))
        else:
            found.append((key[0], name, issued[key].pop(0), int(cycle)))
    return sorted(found, key=lambda one: (one[0], one[2]))


def check(log: Path, checks: Checks) -> None:
    expected = by_hand(log)
    for clock, mhz in CLOCKS.items():
        right = sorted(
            (rank, name, round(Fraction(1000 * begin, mhz)), round(Fraction(1000 * end, mhz)))
            for rank, name, begin, end in expected
        )
        found = sorted(
            (e["pid"], e["name"], round(1000 * e["ts"]), round(1000 * (e["ts"] + e["dur"])))
            for e in drawn(log, clock)
        )
        same = sum(a == b for a, b in zip(found, right, strict=False))
        checks.add_many(f"{log.name} at {clock}", same, max(len(found), len(right)))
    answer = log.with_suffix(".json")
    if answer.exists():
        peer = [e for e in json.loads(answer.read_text())["traceEvents"] if e["ph"] == "X"]
        peer.sort(key=lambda e: (e["pid"], e["ts"]))
        mine = drawn(log, "1GHz")
        same = sum(
            (a["pid"], a["name"], round(1e3 * a["ts"]), round(1e3 * a["dur"]))
            == (b["pid"], b["name"], round(1e6 * b["ts"]), round(1e6 * b["dur"]))
            for a, b in zip(mine, peer, strict=False)
        )
        checks.add_many(f"{log.name}: the visualizer's times, times 1,000", same,
                        max(len(mine), len(peer)))  # fmt: skip


def main() -> None:
    logs = arguments("golden/chakra/text_converter/tl.csv")
    checks = Checks()
    for log in logs:
        check(log, checks)
    checks.finish()


if __name__ == "__main__":
    main()
