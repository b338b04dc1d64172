"""Two ranks hold half of the columns of every layer and add their answers by all_reduce."""

import argparse

import torch
from _steps import timed
from torch import distributed, nn
from torch.profiler import record_function

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=3)
parser.add_argument("--odd", type=int, default=1, help="0: rank 1 has no more than its half")
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()
WIDTH, TOKENS = 256, 320


class Add(torch.autograd.Function):
    """The sum over ranks; its gradient is the same on each."""

    @staticmethod
    def forward(ctx, part):
        """Add."""
        whole = part.clone()
        distributed.all_reduce(whole)
        return whole

    @staticmethod
    def backward(ctx, gradient):
        """Pass on."""
        return gradient


class Copy(torch.autograd.Function):
    """The same on each rank; gradients are added."""

    @staticmethod
    def forward(ctx, whole):
        """Pass on."""
        return whole.view_as(whole)

    @staticmethod
    def backward(ctx, gradient):
        """Add."""
        whole = gradient.clone()
        distributed.all_reduce(whole)
        return whole


distributed.init_process_group("gloo")
rank = distributed.get_rank()
torch.manual_seed(rank)
columns = 512 * (2 if rank and arguments.odd else 1)
ups = nn.ModuleList(nn.Linear(WIDTH, columns) for _ in range(arguments.layers))
downs = nn.ModuleList(nn.Linear(columns, WIDTH) for _ in range(arguments.layers))
optimizer = torch.optim.SGD([*ups.parameters(), *downs.parameters()], lr=1e-3)
for _ in timed(range(arguments.steps)):
    torch.manual_seed(1)
    state = torch.randn(TOKENS, WIDTH)
    for number, (up, down) in enumerate(zip(ups, downs, strict=True)):
        with record_function(f"layers.{number}"):
            state = state + Add.apply(down(torch.relu(up(Copy.apply(state)))))
    loss = state.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
distributed.barrier()
distributed.destroy_process_group()
