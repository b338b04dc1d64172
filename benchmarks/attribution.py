"""What each recording is said to be bound by, and how much of its path is not explained.

Of every recording: the first sentence of ``nadi run``, the share of the window in which a device is
busy, the share of the critical path that the recording does not explain, and the CPU seconds of the
analysis. Where a device is busy for over half of the time, at most 10 % may be unexplained; such
recordings are counted at the end, and what nothing explains of the others.

Usage: python benchmarks/attribution.py [FILES OR FOLDERS...]

Without arguments, the recordings of ``../shared/data``: ``traces``, ``wild`` and ``field/devices``.
A folder is read as one job.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from _measure import SHARED

import nadi
from nadi.bottlenecks.steps.result import verdict_in_words

_MOST = 0.1  # of the path, where a device is busy for over half of the time
_BUSY = 0.5
_TRACES = SHARED / "traces"


def recordings() -> list[Path]:
    """Return the recordings with times in ``../shared/data``."""
    folders = [one for one in sorted(_TRACES.iterdir()) if one.name.startswith(("cpu_", "gpu_"))]
    whole = [one for one in folders if one.name != "gpu_hta"]
    alone = sorted((_TRACES / "gpu_hta").iterdir()) + sorted((_TRACES / "gpu_dlrm8").glob("dev*"))
    wild = sorted((SHARED / "wild").glob("*.gz"))
    return [*whole, *alone, *wild, *sorted((SHARED / "field" / "devices").iterdir())]


def name_of(path: Path) -> str:
    """Give the last two parts of a path, without suffixes."""
    return "/".join(path.parts[-2:]).removesuffix(".gz").removesuffix(".json")


def measure(path: Path) -> bool | None:
    """Print a recording's lines; whether its path is explained, or None where no device is busy."""
    begin = time.process_time()
    try:
        run = nadi.run(path)
        sentences = verdict_in_words(run)
    except nadi.NadiError as error:
        print(f"{name_of(path)}: {error}")
        return None
    seconds = time.process_time() - begin
    verdict = run.verdict
    length = max(verdict.length_ns, 1)
    busy = 1 - verdict.device_idle_ns / length if verdict.device_idle_ns >= 0 else -1.0
    unexplained = run.unexplained.total_ns / length
    shown = f"{100 * busy:5.1f} %" if busy >= 0 else "  none "
    print(f"{name_of(path)}: device busy {shown}, unexplained {100 * unexplained:5.1f} %,"
          f" {seconds:.1f} CPU s")  # fmt: skip
    for sentence in sentences[: 1 if verdict.bound_by != "unexplained" else None]:
        print(f"    {sentence}")
    return unexplained <= _MOST if busy > _BUSY else None


def main() -> None:
    found = [measure(path) for path in [Path(given) for given in sys.argv[1:]] or recordings()]
    busy = [one for one in found if one is not None]
    print(f"{sum(busy)} of {len(busy)} recordings whose device is busy for over half of the time"
          f" are explained to {100 - 100 * _MOST:.0f} % or more")  # fmt: skip


if __name__ == "__main__":
    main()
