"""``nadi run`` on many ranks: copies of the eight of a recording, each with a clock and a speed.

Rank r is made of rank r modulo 8: its number and the number of ranks are changed, its clock is up
to 20 us off, and it is up to 1 % slower. Prints seconds and peak memory of the command.

Usage: python benchmarks/many_ranks.py [RANKS...] [-- OPTIONS OF NADI RUN]    (64 256 1024)
"""

from __future__ import annotations

import gzip
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from _measure import SHARED, measure, nadi

RECORDING = SHARED / "traces/gpu_dlrm8"
SKEW_US, SLOWER = 20, 0.01
_RANK = -4  # place of the rank among the inputs of record_param_comms


def make_ranks(folder: Path, count: int, recording: Path = RECORDING, seed: int = 0) -> None:
    """Write the host and device traces of so many ranks.

    Times of a rank keep their order: each is moved by one increasing function.
    """
    num = len(list(recording.glob("device_*.json.gz")))
    read = {
        (kind, rank): json.loads(
            gzip.decompress((recording / f"{kind}_{rank}.json.gz").read_bytes())
        )
        for kind in ("host", "device")
        for rank in range(num)
    }
    begin = min(event["ts"] for (kind, _), one in read.items() if kind == "device"
                for event in one["traceEvents"] if event.get("ph") == "X")  # fmt: skip
    drawn = random.Random(seed)
    for rank in range(count):
        skew, speed = drawn.randint(0, SKEW_US), 1 + drawn.uniform(0, SLOWER)
        host, device = read["host", rank % num], read["device", rank % num]
        device["distributedInfo"] |= {"rank": rank, "world_size": count}
        events = [_moved(event, begin, skew, speed) for event in device["traceEvents"]]
        for node in host["nodes"]:
            if node["name"] == "record_param_comms":
                node["inputs"][_RANK] = rank
        _write(folder / f"host_{rank}.json.gz", host)
        _write(folder / f"device_{rank}.json.gz", {**device, "traceEvents": events})


def _moved(event: dict[str, Any], begin: int, skew: int, speed: float) -> dict[str, Any]:
    """Return an event at other times; those before the first operation are of no clock."""
    if event.get("ts", 0) < begin:
        return event
    start = begin + skew + round((event["ts"] - begin) * speed)
    if "dur" not in event:
        return {**event, "ts": start}
    end = begin + skew + round((event["ts"] + event["dur"] - begin) * speed)
    return {**event, "ts": start, "dur": end - start}


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_bytes(gzip.compress(json.dumps(content, separators=(",", ":")).encode(), 1, mtime=0))


def main() -> None:
    given = sys.argv[1:]
    at = given.index("--") if "--" in given else len(given)
    for count in map(int, given[:at] or ("64", "256", "1024")):
        with tempfile.TemporaryDirectory() as made:
            make_ranks(Path(made), count)
            command = nadi("run", made, *given[at + 1 :])
            print(f"{count} ranks: {measure(command, runs=1)}", flush=True)


if __name__ == "__main__":
    main()
