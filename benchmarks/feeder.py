"""The feeder: 400,000 nodes/s one by one, 5,000,000 in batches, memory that the window bounds.

Usage: python benchmarks/feeder.py [FILE.et[.gz] ...]

By default the largest .et that Chakra's own feeder was timed with, and one of ten million nodes
that is made here, in layers of a thousand nodes that each wait for two of the layer before.
Each way is a process of its own. Seconds are those of the processor: others may use it too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from _measure import SHARED

import nadi

_NODES, _WIDTH, _AT_ONCE = 10_000_000, 1_000, 100_000
_WINDOWS = (1 << 20, 1 << 17, 1 << 14)
_DEFAULT = SHARED / "golden/chakra/gpu_resnet_1gpu_et103__nccl_data/out.et.gz"
_NUMBER = bytes(5)  # a number always written in five bytes, so that all messages are alike
_METADATA = b"\x07\x0a\x050.0.4"
_ATTRIBUTES = b"\x52\x0e\x0a\x09is_cpu_op\xd8\x01\x00" + b"\x52\x0f\x0a\x07num_ops\x48" + _NUMBER
_MESSAGE = (
    b"\x08" + _NUMBER + b"\x12\x06matmul" + b"\x18\x04" + b"\x2a\x0a" + 2 * _NUMBER + b"\x38\x11"
    + _ATTRIBUTES
)  # fmt: skip
_ID, _DEPS, _OPS = 1, 18, len(_MESSAGE) - 5

_DRIVE = r"""
import json, re, sys, time
from pathlib import Path
import nadi

def load(feeder):
    while not feeder._reader.is_complete:
        feeder._reader.read(window)

def node_by_node(feeder):
    while feeder.has_nodes_to_issue():
        number = feeder.get_next_issuable_node().id
        feeder.free_children_nodes(number)
        feeder.remove_node(number)

def batches(feeder):
    while feeder.has_nodes_to_issue():
        feeder.release(feeder.drain())

def ending(feeder):
    while feeder.has_nodes_to_issue():
        feeder.drain(ending=True)

path, way, window, runs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
seconds = []
for _ in range(runs):
    begin = time.process_time()
    feeder = nadi.ETFeeder(path, window)
    globals()[way](feeder)
    seconds.append(time.process_time() - begin)
status = Path("/proc/self/status").read_text()
print(json.dumps([min(seconds), int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024]))
"""
_WAYS = ("load", "node_by_node", "batches", "ending")


def write_layers(path: Path, num_nodes: int, width: int) -> None:
    """Write an .et in layers, some megabytes at a time."""
    with path.open("wb") as file:
        file.write(_METADATA)
        for first in range(0, num_nodes, _AT_ONCE):
            ids = np.arange(first, min(first + _AT_ONCE, num_nodes), dtype=np.int64)
            is_first = ids < width
            file.write(_messages(ids[is_first], width, has_deps=False))
            file.write(_messages(ids[~is_first], width, has_deps=True))


def _messages(ids: np.ndarray, width: int, *, has_deps: bool) -> bytes:
    out = np.empty((ids.size, 1 + len(_MESSAGE)), dtype=np.uint8)
    out[:, 0] = len(_MESSAGE)
    out[:, 1:] = np.frombuffer(_MESSAGE, dtype=np.uint8)
    message = out[:, 1:]
    _put(message, _ID, ids)
    _put(message, _OPS, ids * 1_000 % 1_000_003)
    if not has_deps:
        kept = np.ones(out.shape[1], dtype=np.bool_)
        kept[1 + _DEPS - 2 : 1 + _DEPS + 10] = False
        out[:, 0] -= 12
        return out[:, kept].tobytes()
    own_layer = ids // width * width
    _put(message, _DEPS, ids - width)
    _put(message, _DEPS + 5, own_layer - width + (ids - own_layer + 1) % width)
    return out.tobytes()


def _put(message: np.ndarray, at: int, values: np.ndarray) -> None:
    """Write numbers of five bytes."""
    for place in range(5):
        message[:, at + place] = (values >> (7 * place)) & 0x7F | (0x80 if place < 4 else 0)


def drive(path: Path, way: str, window: int, runs: int) -> tuple[float, float]:
    """Give the shortest time and the highest memory in MB of a way to go through a file."""
    done = subprocess.run(
        [sys.executable, "-c", _DRIVE, str(path), way, str(window), str(runs)],
        check=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    seconds, peak = json.loads(done.stdout)
    return seconds, peak


def report(path: Path, num_nodes: int, window: int, ways: tuple[str, ...], runs: int) -> None:
    print(f"{path.name}: {num_nodes:,} nodes, {path.stat().st_size / 1e6:,.0f} MB, {window=:,}")
    loading = drive(path, "load", window, runs)[0]
    for way in ways:
        seconds, peak = drive(path, way, window, runs)
        line = f"  {way:12} {seconds:7.3f} s = {num_nodes / seconds:12,.0f} nodes/s"
        if way != "load":
            rest = max(seconds - loading, 1e-9)
            line += f", {num_nodes / rest:12,.0f} without reading"
        print(f"{line}, {peak:,.0f} MB at peak")


def main() -> None:
    given = [Path(argument) for argument in sys.argv[1:]]
    for path in given or [_DEFAULT]:
        report(path, nadi.read(path).nodes.height, _WINDOWS[0], _WAYS, 5)
    if given:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layers.et"
        write_layers(path, _NODES // 10, _WIDTH)
        report(path, _NODES // 10, _WINDOWS[0], _WAYS, 3)
        write_layers(path, _NODES, _WIDTH)
        for window in _WINDOWS:
            report(path, _NODES, window, ("load", "node_by_node", "ending"), 1)


if __name__ == "__main__":
    main()
