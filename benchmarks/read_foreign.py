"""``nadi.read`` of other tools' files: size, seconds, events/s and peak memory of each.

Usage: python benchmarks/read_foreign.py [FILES...]

By default the files of ../shared/data/field, and a recording of PyTorch as ``.pftrace`` whose
packets are repeated, one time after another, until they are half a million.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from _measure import SHARED, measure_read, report_read

_FILES = (
    "field/nsys/nsys-ai_mfu_2gpu_before.sqlite", "field/devices/rocprof__908_results.json.gz",
    "field/memory/cs336_memory_ctx128_fullstep.pickle",
    "field/devices/test_data_jax_te_fused_attn_categorization__934987a2fc2f.xplane.pb",
)  # fmt: skip
_RECORDED = Path(__file__).parents[1] / "tests/formats/recorded/recorded.pftrace"
_WANTED = 500_000
_SECOND = 10**9


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (content[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if content[at - 1] < 128:
            return value, at


def _put(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def _packets(content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        size, at = _varint(content, at + 1)
        yield content[at : at + size]
        at += size


def _packet(content: bytes) -> bytes:
    return b"\n" + _put(len(content)) + content


def write_repeated(path: Path, wanted: int) -> None:
    """Repeat what has a time in a ``.pftrace``: a packet whose first field is its time."""
    packets = list(_packets(gzip.decompress(_RECORDED.read_bytes())))
    first = next(k for k, one in enumerate(packets) if k and one[:1] == b"\x40")
    timed = [_varint(one, 1) for one in packets[first:]]
    with path.open("wb") as file:
        file.writelines(map(_packet, packets[:first]))
        for copy in range(-(-wanted // len(timed))):
            file.writelines(
                _packet(b"\x40" + _put(time + copy * _SECOND) + one[at:])
                for one, (time, at) in zip(packets[first:], timed, strict=True)
            )


def main() -> None:
    given = [Path(one) for one in sys.argv[1:]] or [SHARED / one for one in _FILES]
    with tempfile.TemporaryDirectory() as folder:
        if len(sys.argv) == 1:
            given.append(Path(folder) / "repeated.pftrace")
            write_repeated(given[-1], _WANTED)
        for path in given:
            stored = path.stat().st_size
            report_read(path, stored, measure_read(path).nodes, "events", "file")


if __name__ == "__main__":
    main()
