"""Times of all-reduces among processes of this machine, for verification/scaled.py.

``python verification/_gloo_times.py N`` prints the least time of a small and of a large one in
ns, and their bytes, separated by commas.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

FEW, MANY = 4096, 1 << 20
WARMUP, TIMED = 3, 15


def _rank(rank: int, size: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    least = []
    for num_bytes in (FEW, MANY):
        given, times = torch.ones(num_bytes // 4), []
        for number in range(WARMUP + TIMED):
            dist.barrier()
            start = time.perf_counter_ns()
            dist.all_reduce(given)
            if number >= WARMUP:
                times.append(time.perf_counter_ns() - start)
        least.append(min(times))
    if rank == 0:
        Path(store + ".times").write_text(",".join(map(str, [*least, FEW, MANY])))
    dist.destroy_process_group()


if __name__ == "__main__":
    size = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as place:
        store = str(Path(place) / "store")
        torch.multiprocessing.spawn(_rank, (size, store), nprocs=size)
        print(Path(store + ".times").read_text())
