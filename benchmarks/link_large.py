"""``nadi link`` as whole processes: the largest pair, four sizes, and four ranks side by side.

Usage: python benchmarks/link_large.py

The largest pair at hand to an .et: under 2.5 s warm and 700 MB. Four ranks on two cores: 1.7
times faster than one after the other. Processor time is told beside, for busy machines.
"""

from __future__ import annotations

import gzip
import os
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from _measure import SHARED, content_size, nadi

_SIZES = ("cpu_mlp", "cpu_transformer4", "cpu_transformer_mid", "cpu_transformer_big")
_RANKS = 4


def run(*arguments: str) -> tuple[float, float, float]:
    """Run ``nadi link``; gives seconds, processor seconds, and MB at peak of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    process = subprocess.Popen(nadi("link", *arguments), stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    if status:
        raise SystemExit(f"nadi link {' '.join(arguments)} failed")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, processor, usage.ru_maxrss / 1024


def best(runs: int, *arguments: str) -> tuple[float, float, float]:
    """Run several times; gives the least of each figure."""
    figures = [run(*arguments) for _ in range(runs)]
    return min(f[0] for f in figures), min(f[1] for f in figures), min(f[2] for f in figures)


def report_sizes(output: str) -> None:
    """Print what pairs of four sizes take."""
    for name in _SIZES:
        folder = SHARED / "traces" / name
        files = [folder / "host.json.gz", folder / "device.json.gz"]
        content = sum(map(content_size, files)) / 1e6
        seconds, processor, peak = best(
            3, *map(str, files), "-o", f"{output}/{name}.et", "--overwrite"
        )
        print(f"{name}: {content:.0f} MB of JSON, {seconds:.2f} s, {processor:.2f} s of processor,"
              f" {peak:,.0f} MB at peak")  # fmt: skip


def report_ranks(output: str) -> None:
    """Print what several ranks take side by side, and one after the other."""
    folder = Path(output) / "ranks"
    folder.mkdir()
    source = SHARED / "traces" / _SIZES[-1]
    device = gzip.decompress((source / "device.json.gz").read_bytes())
    for rank in range(_RANKS):
        shutil.copy(source / "host.json.gz", folder / f"host_{rank}.json.gz")
        # as PyTorch tells it of a job of several ranks
        stated = b'{"distributedInfo": {"rank": %d, "world_size": %d},' % (rank, _RANKS)
        content = device.replace(b"{", stated, 1)
        (folder / f"device_{rank}.json.gz").write_bytes(gzip.compress(content, 1))
    together, processor, peak = best(3, str(folder), "-o", f"{output}/all", "--overwrite")
    alone = 0.0
    for rank in range(_RANKS):
        files = [str(folder / f"{kind}_{rank}.json.gz") for kind in ("host", "device")]
        alone += best(3, *files, "-o", f"{output}/{rank}.et", "--overwrite")[0]
    print(f"{_RANKS} ranks on {os.cpu_count()} cores: {together:.2f} s, {processor:.2f} s of"
          f" processor, {peak:,.0f} MB at peak of the first process; one after the other"
          f" {alone:.2f} s, {alone / together:.2f} times as long")  # fmt: skip


def main() -> None:
    with tempfile.TemporaryDirectory() as output:
        files = [str(SHARED / f"traces/cpu_mlp/{kind}.json.gz") for kind in ("host", "device")]
        run(*files, "-o", f"{output}/warm.et")  # compiled kernels
        report_sizes(output)
        report_ranks(output)


if __name__ == "__main__":
    main()
