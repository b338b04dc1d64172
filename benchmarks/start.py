"""Cold start: ``nadi --help`` (under 0.3 s), ``nadi demo`` cold (25 s) and warm (3 s)."""

from __future__ import annotations

import tempfile
from pathlib import Path

from _measure import content_size, measure, nadi

import nadi as nadi_package


def main() -> None:
    files = (Path(nadi_package.__file__).parent / "data" / "demo").glob("*.json.gz")
    size = sum(content_size(file) for file in files) / 1e6
    print(f"the demo's input: {size:.1f} MB of JSON, 4 ranks")
    print(f"nadi --help, warm:             {measure(nadi('--help'), runs=5)}")
    with tempfile.TemporaryDirectory() as folder:
        cold = measure(nadi("demo"), runs=1, XDG_CACHE_HOME=folder, NUMBA_CACHE_DIR="")
        print(f"nadi demo, compiling kernels:  {cold}, {size / cold.best:.0f} MB/s")
        warm = measure(nadi("demo"), XDG_CACHE_HOME=folder, NUMBA_CACHE_DIR="")
        print(f"nadi demo, after that:         {warm}, {size / warm.best:.0f} MB/s")


if __name__ == "__main__":
    main()
