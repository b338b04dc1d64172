"""Cold start: ``nadi --help`` (under 0.3 s), ``nadi demo`` cold (25 s) and warm (3 s)."""

from __future__ import annotations

import tempfile

from _measure import measure, nadi


def main() -> None:
    print(f"nadi --help, warm:             {measure(nadi('--help'), runs=5)}")
    with tempfile.TemporaryDirectory() as folder:
        cold = measure(nadi("demo"), runs=1, XDG_CACHE_HOME=folder, NUMBA_CACHE_DIR="")
        print(f"nadi demo, compiling kernels:  {cold}")
        warm = measure(nadi("demo"), XDG_CACHE_HOME=folder, NUMBA_CACHE_DIR="")
        print(f"nadi demo, after that:         {warm}")


if __name__ == "__main__":
    main()
