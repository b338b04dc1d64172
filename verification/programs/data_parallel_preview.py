"""Data parallelism of two ranks; rank 0 alone draws a preview each step, and rank 1 waits."""

import argparse

import torch
from _steps import timed
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function

parser = argparse.ArgumentParser()
parser.add_argument("--preview", type=int, default=1, help="0: rank 0 draws none")
parser.add_argument("--parts", type=int, default=4, help="parts of the batch")
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()

distributed.init_process_group("gloo")
torch.manual_seed(0)
network = DistributedDataParallel(
    nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
    )
)  # fmt: skip
optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
shown = torch.rand(24, 3, 31, 31)
for _ in timed(range(arguments.steps)):
    optimizer.zero_grad()
    for part in range(arguments.parts):
        with record_function(f"part.{part}"):
            x, y = torch.rand(40, 3, 31, 31), torch.randint(0, 10, (40,))
            network.require_backward_grad_sync = part == arguments.parts - 1
            nn.functional.cross_entropy(network(x), y).backward()
    if arguments.preview and distributed.get_rank() == 0:
        with record_function("preview"), torch.no_grad():
            picture = shown
            for _ in range(4):
                picture = nn.functional.interpolate(picture, size=(62, 62), mode="bicubic")
                picture = nn.functional.avg_pool2d(picture, 2)
    optimizer.step()
distributed.barrier()
distributed.destroy_process_group()
