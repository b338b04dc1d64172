"""Parts of a large recording as files of their own: time, rate and peak memory of whole commands.

A step, and one operator with what is nested in it, of 194,992 operations. Each is a process of its
own that reads both files, builds the event graph, and writes the part; reading and the graph alone
are measured for comparison.

Usage: python benchmarks/extract.py [FOLDER]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from _measure import SHARED, content_size, measure, nadi as command

import nadi

PARTS = {
    "step 5": ("--step", "5"),
    "aten::linear in step 5": ("--step", "5", "--under", "^aten::linear$"),
}


def main() -> None:
    """Print size, seconds, rate and memory of each part."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else SHARED / "traces/cpu_transformer_big"
    size = sum(content_size(file) for file in folder.glob("*.gz"))
    operations = nadi.build_graph(nadi.load_job(folder)).num_ops
    print(f"{folder.name}: {operations:,} operations, {size / 1e6:.0f} MB unpacked")
    read = measure(command("run", str(folder), "--json"))
    print(f"nadi run, for comparison: {read}")
    for name, conditions in PARTS.items():
        with tempfile.TemporaryDirectory() as output:
            found = measure(
                command("extract", str(folder), *conditions, "-o", output, "--overwrite")
            )
            written = sum(file.stat().st_size for file in Path(output).iterdir())
        rate = operations / found.best
        print(f"{name}: {found}; {rate:,.0f} operations/s read, {written / 1e6:.1f} MB written")


if __name__ == "__main__":
    main()
