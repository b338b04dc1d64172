"""``nadi run`` on the largest pair at hand: under 5 s warm and 1.2 GB.

Usage: python benchmarks/run_large.py [FOLDER]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from _measure import SHARED, content_size, measure, nadi


def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else str(SHARED / "traces/cpu_transformer_big")
    measure(nadi("demo"), runs=1)  # compiled kernels
    content = sum(content_size(file) for file in Path(folder).glob("*.json.gz"))
    with tempfile.TemporaryDirectory() as output:
        for name, arguments in (("", []), (" -o", ["-o", output, "--overwrite"])):
            found = measure(nadi("run", folder, *arguments))
            rate = content / 1e6 / found.best
            print(f"nadi run {Path(folder).name}{name}: {content / 1e6:.0f} MB of JSON, {found},"
                  f" {rate:.0f} MB/s")  # fmt: skip


if __name__ == "__main__":
    main()
