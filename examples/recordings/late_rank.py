"""Rank 1 has eight times the products of rank 0 before each all-reduce; recorded on two ranks.

nadi record --steps 5 -o late_rank -- torchrun --nproc-per-node 2 late_rank.py
"""

import torch
import torch.distributed as dist


def main() -> None:
    """Train one parameter for some steps."""
    dist.init_process_group("gloo")
    products = 16 if dist.get_rank() == 1 else 2
    weight = torch.nn.Parameter(torch.randn(384, 384))
    optimizer = torch.optim.SGD([weight], lr=1e-9)
    for _ in range(16):
        x = torch.randn(384, 384)
        with torch.no_grad():
            for _ in range(products):
                x = (x @ weight).tanh()
        y = x * weight
        total = y.detach().clone()
        dist.all_reduce(total)
        y.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
