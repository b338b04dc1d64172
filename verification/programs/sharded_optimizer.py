"""Two ranks, each keeps half of every weight: all_gather before, reduce_scatter after a layer."""

import argparse

import torch
from _steps import timed
from torch import distributed, nn
from torch.profiler import record_function

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--measure", type=int, default=1, help="0: no singular values of the first")
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()
WIDTH, BATCH = 448, 64


class Gather(torch.autograd.Function):
    """The whole weight from its shards; its gradient is summed and split again."""

    @staticmethod
    def forward(ctx, shard):
        """Gather."""
        whole = shard.new_empty(2 * shard.shape[0], shard.shape[1])
        distributed.all_gather_into_tensor(whole, shard)
        return whole

    @staticmethod
    def backward(ctx, gradient):
        """Sum and split."""
        shard = gradient.new_empty(gradient.shape[0] // 2, gradient.shape[1])
        distributed.reduce_scatter_tensor(shard, gradient.contiguous())
        return shard


distributed.init_process_group("gloo")
torch.manual_seed(distributed.get_rank())
shards = nn.ParameterList(torch.randn(WIDTH // 2, WIDTH) / 21 for _ in range(arguments.layers))
optimizer = torch.optim.Adam(shards, lr=1e-4)
for _ in timed(range(arguments.steps)):
    state = torch.randn(BATCH, WIDTH)
    for number, shard in enumerate(shards):
        with record_function(f"layers.{number}"):
            state = torch.tanh(state @ Gather.apply(shard))
    loss = state.pow(2).mean()
    if arguments.measure:
        with record_function("spectrum"), torch.no_grad():
            torch.linalg.svdvals(shards[0][:96, :96])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
distributed.barrier()
distributed.destroy_process_group()
