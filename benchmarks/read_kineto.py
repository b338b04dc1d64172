"""``nadi.read`` of a Kineto trace of a million events: over 1.5 M events/s, 3 times the JSON.

Usage: python benchmarks/read_kineto.py [EVENTS]
"""

from __future__ import annotations

import gzip
import re
import sys
import tempfile
from pathlib import Path

from _measure import SHARED, measure_read, report_read

_SOURCE = SHARED / "traces/cpu_transformer_big/device.json.gz"
_TIME = re.compile(rb'("ts": )(\d+)')


def write_repeated(path: Path, wanted: int) -> int:
    """Repeat the events of a recording, arguments and all, one time after another.

    Gives how many there are.
    """
    content = gzip.decompress(_SOURCE.read_bytes())
    begin = content.index(b'"traceEvents": [') + len(b'"traceEvents": [')
    end = content.rindex(b"]", 0, content.rindex(b'"traceName"'))
    events = content[begin:end]
    one = events.count(b'"ph":')
    whole, rest = divmod(wanted, one)
    # the rest ends where an event begins
    places = [i for i in range(len(events)) if events.startswith(b"\n  {\n", i)][:rest]
    part = events[: places[-1]].rstrip().rstrip(b",") if rest > 1 else b""
    pieces = [_later(events, copy) for copy in range(whole)]
    if part:
        pieces.append(_later(part, whole))
    path.write_bytes(content[:begin] + b",".join(pieces) + content[end:])
    return whole * one + part.count(b'"ph":')


def _later(events: bytes, copy: int) -> bytes:
    """Move events by 100 s for each copy before."""
    return _TIME.sub(lambda found: found[1] + b"%d" % (int(found[2]) + copy * 10**8), events)


def main() -> None:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "device.json"
        count = write_repeated(path, wanted)
        content = path.stat().st_size
        measure_read(_SOURCE)  # compiled kernels
        report_read(path, content, count, "events")
        packed = path.with_suffix(".json.gz")
        packed.write_bytes(gzip.compress(path.read_bytes(), 6))
        report_read(packed, content, count, "events")


if __name__ == "__main__":
    main()
