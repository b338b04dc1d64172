"""Nadi's own file with a million nodes: opened in 0.1 s, in one warm process.

Usage: python benchmarks/native_file.py [FOLDER]

The largest pair at hand is linked and repeated until it has a million nodes.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import polars as pl
from _measure import SHARED, best_of, peak_memory_mb

import nadi

_NODES = 1_000_000


def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else SHARED / "traces/cpu_transformer_big"
    trace = repeated(nadi.load_job(folder).traces[0])
    with tempfile.TemporaryDirectory() as output:
        path = Path(output) / "million.nadi"
        writing = best_of(lambda: nadi.write(trace, path), runs=2)
        opening = best_of(lambda: nadi.read(path), runs=7)
        size = path.stat().st_size / 1e6
    nodes = trace.nodes.height
    print(f"{nodes:,} nodes, {trace.deps.height:,} dependencies, {size:.0f} MB")
    print(f"open {opening:.3f} s, {nodes / opening:,.0f} nodes/s; write {writing:.2f} s")
    print(f"peak {peak_memory_mb():,.0f} MB")


def repeated(trace: nadi.Trace) -> nadi.Trace:
    """Put copies of a trace one after the other; attributes stay those of the first."""
    height = trace.nodes.height
    copies = -(-_NODES // height)
    ids = pl.int_range(height * copies)
    deps = [trace.deps.with_columns(pl.col("src", "dst") + copy * height) for copy in range(copies)]
    return replace(
        trace, nodes=pl.concat([trace.nodes] * copies).with_columns(id=ids), deps=pl.concat(deps)
    )


if __name__ == "__main__":
    main()
