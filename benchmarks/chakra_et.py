"""Chakra's .et, read and written in one warm process: 2,000,000 and 600,000 nodes/s.

Usage: python benchmarks/chakra_et.py [FILE.et | FOLDER]

A folder is linked and converted first; by default the largest pair at hand.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from _measure import SHARED, best_of, peak_memory_mb

import nadi


def main() -> None:
    given = Path(sys.argv[1] if len(sys.argv) > 1 else SHARED / "traces/cpu_transformer_big")
    with tempfile.TemporaryDirectory() as folder:
        if given.is_dir():
            et = Path(folder) / "linked.et"
            nadi.write(nadi.load_job(given).traces[0], et)
            given = et
        copy = Path(folder) / "copy.et"
        trace = nadi.read(given)
        nadi.write(trace, copy)
        reading = best_of(lambda: nadi.read(given))
        writing = best_of(lambda: nadi.write(trace, copy))
        size, nodes = given.stat().st_size / 1e6, trace.nodes.height
    print(f"{nodes:,} nodes, {len(trace.attributes):,} attributes, {size:.0f} MB")
    for what, seconds in (("read", reading), ("write", writing)):
        rates = f"{nodes / seconds:,.0f} nodes/s, {size / seconds:,.0f} MB/s"
        print(f"{what}: {seconds:.3f} s, {rates}")
    print(f"peak {peak_memory_mb():,.0f} MB")


if __name__ == "__main__":
    main()
