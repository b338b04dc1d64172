"""Ordinary PyTorch programs, which know nothing of Nadi; torch is imported when they run."""

from __future__ import annotations

import os
from typing import Any

WIDTH, HIDDEN, HEADS, WORDS, LENGTH = 256, 1024, 8, 512, 64


def transformer(num_layers: int = 2) -> Any:
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n1, self.n2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
            self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
            self.w1, self.w3 = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
            self.w2 = nn.Linear(HIDDEN, WIDTH, bias=False)

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            y = self.n1(x)
            q, k, v = (
                one(y).view(batch, length, -1, WIDTH // HEADS).transpose(1, 2)
                for one in (self.q, self.k, self.v)
            )
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.o(y.transpose(1, 2).reshape(batch, length, -1))
            y = self.n2(x)
            return x + self.w2(functional.silu(self.w1(y)) * self.w3(y))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(WORDS, WIDTH)
            self.blocks = nn.ModuleList(Block() for _ in range(num_layers))
            self.norm = nn.RMSNorm(WIDTH)
            self.head = nn.Linear(WIDTH, WORDS, bias=False)

        def forward(self, words: Any) -> Any:
            x = self.embedding(words)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    _ = torch
    return Model()


def _device() -> Any:
    import torch
    import torch.distributed as dist

    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return torch.device("cuda", int(os.environ["LOCAL_RANK"]))


def _train(model: Any, optimizer: Any, device: Any, steps: int = 4) -> None:
    import torch
    from torch.nn import functional

    for _ in range(steps):
        words = torch.randint(0, WORDS, (2, LENGTH + 1), device=device)
        loss = functional.cross_entropy(
            model(words[:, :-1]).flatten(0, 1).float(), words[:, 1:].flatten()
        )
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def data_parallel() -> None:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    device = _device()
    model = DistributedDataParallel(transformer().to(device), device_ids=[device.index])
    _train(model, torch.optim.AdamW(model.parameters(), fused=True), device)


def fully_sharded() -> None:
    import torch
    from torch.distributed.fsdp import fully_shard
    from torch.nn.utils import clip_grad_norm_

    device = _device()
    model = transformer().to(device=device, dtype=torch.bfloat16)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        words = torch.randint(0, WORDS, (2, LENGTH), device=device)
        model(words).float().mean().backward()
        norm = clip_grad_norm_(model.parameters(), 1.0)
        assert float(norm.item()) > 0
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def _plan() -> dict[str, Any]:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    wide, narrow = ColwiseParallel, RowwiseParallel
    return {"q": wide(), "k": wide(), "v": wide(), "o": narrow(), "w1": wide(), "w3": wide(),
            "w2": narrow()}  # fmt: skip


def tensor_parallel() -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import parallelize_module

    device = _device()
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("tp",))
    model = transformer().to(device)
    for block in model.blocks:
        parallelize_module(block, mesh, _plan())
    _train(model, torch.optim.AdamW(model.parameters(), foreach=False), device)


def tensor_and_sharded(tensor_size: int = 4) -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import parallelize_module

    device = _device()
    shape = dist.get_world_size() // tensor_size, tensor_size
    mesh = init_device_mesh("cuda", shape, mesh_dim_names=("dp", "tp"))
    with torch.device("meta"):
        model = transformer()
    for block in model.blocks:
        parallelize_module(block, mesh["tp"], _plan())
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    model.to_empty(device=device)
    _train(model, torch.optim.AdamW(model.parameters(), foreach=False), device)


def pipeline(num_stages: int = 4, micro_batches: int = 2) -> None:
    """Stages that send activations and gradients; the rest of the ranks are data parallel."""
    import torch
    import torch.distributed as dist
    from torch import nn

    device = _device()
    rank, stride = dist.get_rank(), dist.get_world_size() // num_stages
    stage = rank // stride
    groups = [dist.new_group(list(range(k * stride, (k + 1) * stride))) for k in range(num_stages)]
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(2))).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        pairs = []
        for _ in range(micro_batches):
            given = torch.zeros(8, WIDTH, device=device, requires_grad=stage > 0)
            if stage > 0:
                dist.recv(given.data, rank - stride)
            made = model(given)
            if stage < num_stages - 1:
                dist.send(made.detach(), rank + stride)
            pairs.append((given, made))
        for given, made in pairs:
            if stage < num_stages - 1:
                gradient = torch.empty_like(made)
                dist.recv(gradient, rank + stride)
                made.backward(gradient)
            else:
                made.sum().backward()
            if stage > 0:
                dist.send(given.grad, rank - stride)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=groups[stage])
        optimizer.step()
        optimizer.zero_grad()


def experts(num_local: int = 2) -> None:
    """A layer of experts: counts of tokens are exchanged, then the tokens themselves."""
    import torch
    import torch.distributed as dist
    from torch import nn

    device = _device()
    world = dist.get_world_size()
    number = world * num_local

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(WIDTH, number, bias=False)
            self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(num_local))

        def forward(self, x: Any) -> Any:
            weights, chosen = self.gate(x).softmax(-1).topk(2)
            order = chosen.flatten().argsort()
            tokens = x[order // 2]
            counts = torch.bincount(chosen.flatten(), minlength=number)
            received = torch.empty_like(counts)
            dist.all_to_all_single(received, counts)
            to_ranks = counts.view(world, -1).sum(1).tolist()
            from_ranks = received.view(world, -1).sum(1).tolist()
            got = torch.empty(sum(from_ranks), WIDTH, device=x.device)
            dist.all_to_all_single(got, tokens.detach(), from_ranks, to_ranks)
            sizes = received.view(world, -1).sum(0).tolist()
            parts = got.split(sizes)
            made = torch.cat([one(part) for one, part in zip(self.experts, parts, strict=True)])
            back = torch.empty_like(tokens)
            dist.all_to_all_single(back, made.detach(), to_ranks, from_ranks)
            return back.sum() + made.sum() + weights.sum()

    model = Experts().to(device)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        model(torch.randn(128, WIDTH, device=device)).backward()
        optimizer.step()
        optimizer.zero_grad()


def mixed_precision() -> None:
    """Autocast, a scaler, recomputation, and a loss that is read in each step."""
    import torch
    from torch.utils.checkpoint import checkpoint

    device = _device()
    model = transformer().to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda")
    total = 0.0
    for _ in range(3):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            words = torch.randint(0, WORDS, (2, LENGTH)).to(device, non_blocking=True)
            x = model.embedding(words)
            for block in model.blocks:
                x = checkpoint(block, x, use_reentrant=False)
            loss = model.head(model.norm(x)).float().logsumexp(-1).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        total += loss.item()
    assert total > 0


def inference() -> None:
    import torch

    device = _device()
    model = transformer().to(device).eval()
    with torch.inference_mode():
        words = torch.randint(0, WORDS, (1, LENGTH), device=device)
        model(words).argmax(-1)
