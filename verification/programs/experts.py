"""Two ranks, an expert on each; tokens go there by all_to_all. Rank 1 gets three of four tokens."""

import argparse

import torch
from _steps import timed
from torch import distributed, nn
from torch.profiler import record_function

parser = argparse.ArgumentParser()
parser.add_argument("--favoured", type=float, default=0.75, help="share of the tokens of rank 1")
parser.add_argument("--dense", type=int, default=1, help="0: without the dense part")
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()
WIDTH, TOKENS = 192, 1024


class Exchange(torch.autograd.Function):
    """Send parts of the tokens to the other rank; gradients go the other way."""

    @staticmethod
    def forward(ctx, tokens, here, there):
        """Exchange."""
        ctx.here, ctx.there = here, there
        got = tokens.new_empty(sum(there), tokens.shape[1])
        distributed.all_to_all_single(got, tokens.contiguous(), there, here)
        return got

    @staticmethod
    def backward(ctx, gradient):
        """Exchange back."""
        got = gradient.new_empty(sum(ctx.here), gradient.shape[1])
        distributed.all_to_all_single(got, gradient.contiguous(), ctx.here, ctx.there)
        return got, None, None


distributed.init_process_group("gloo")
rank = distributed.get_rank()
torch.manual_seed(rank)
dense = nn.Sequential(nn.Linear(WIDTH, 384), nn.GELU(), nn.Linear(384, WIDTH))
expert = nn.Sequential(nn.Linear(WIDTH, 768), nn.GELU(), nn.Linear(768, WIDTH))
optimizer = torch.optim.SGD([*dense.parameters(), *expert.parameters()], lr=1e-3)
to_second = int(TOKENS * arguments.favoured)
sent = [TOKENS - to_second, to_second]
taken = [sent[rank]] * 2
for _ in timed(range(arguments.steps)):
    state = torch.randn(TOKENS, WIDTH, requires_grad=True)  # as after another layer
    if arguments.dense:
        with record_function("dense"):
            state = state + dense(state)
    arrived = Exchange.apply(state, sent, taken)
    with record_function("expert"):
        arrived = expert(arrived)
    answer = Exchange.apply(arrived, taken, sent)
    loss = (state + answer).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
distributed.barrier()
distributed.destroy_process_group()
