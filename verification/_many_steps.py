"""Trains a small network for some hundred steps: ``python _many_steps.py mlp``, or transformer."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
if sys.argv[1] == "mlp":
    parts = [part for _ in range(6)
             for part in (nn.Linear(256, 256), nn.GELU(), nn.LayerNorm(256))]  # fmt: skip
    model, batch = nn.Sequential(*parts), torch.randn(256, 256)
else:
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0)
    model, batch = nn.TransformerEncoder(layer, 3), torch.randn(8, 64, 128)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(120):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
