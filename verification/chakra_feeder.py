"""The order in which Chakra's feeder issues nodes, against Nadi's.

Usage: python verification/chakra_feeder.py [FOLDER ...]

Each folder has a trace, ``out.et.gz``, and the order that the C++ ETFeeder gave its nodes in,
each ended before the next was asked for (``feeder_issue_order.txt.gz``); by default all below
the shared ones. The order must come out node by node and many at once, in the peer's window and
in small ones: these traces stand in the order of their dependencies, so that the window must not
matter. ``feeder_summary.txt`` states the sum of all runtimes, which the nodes must have too.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

from _report import Checks, arguments

import nadi

DEFAULT = "golden/chakra"
_WINDOWS = (1 << 20, 1_000, 10)


def one_by_one(feeder: nadi.ETFeeder) -> Iterator[tuple[int, int]]:
    """Give id and runtime of each node, ended before the next."""
    while feeder.has_nodes_to_issue():
        node = feeder.get_next_issuable_node()
        assert node is not None, "nothing is in flight, and nothing is ready"
        yield node.id, node.runtime
        feeder.free_children_nodes(node.id)
        feeder.remove_node(node.id)


def at_once(feeder: nadi.ETFeeder) -> Iterator[tuple[int, int]]:
    """Give the same in batches."""
    while feeder.has_nodes_to_issue():
        batch = feeder.drain(ending=True)
        yield from zip(batch.id.tolist(), batch.runtime.tolist(), strict=True)


def check(folder: Path, checks: Checks) -> None:
    expected = [int(line) for line in gzip.decompress(
        (folder / "feeder_issue_order.txt.gz").read_bytes()).split()]  # fmt: skip
    stated = re.search(r"rt_sum (\d+)", (folder / "feeder_summary.txt").read_text())
    assert stated is not None, f"{folder}: no sum of runtimes"
    for window in _WINDOWS:
        for way, drive in (("one by one", one_by_one), ("at once", at_once)):
            issued = list(drive(nadi.ETFeeder(folder / "out.et.gz", window)))
            equal = sum(a == b for (a, _), b in zip(issued, expected, strict=False))
            what = f"{folder.name}, {way}, window {window:,}"
            checks.add_many(f"{what}: order", equal, max(len(expected), len(issued)))
            total = sum(runtime for _, runtime in issued)
            checks.add(f"{what}: sum of runtimes", total == int(stated[1]), f"{total:,} us")


def main() -> None:
    checks = Checks()
    for given in arguments(DEFAULT):
        for order in sorted(given.rglob("feeder_issue_order.txt.gz")):
            check(order.parent, checks)
    checks.finish()


if __name__ == "__main__":
    main()
