"""A decoder of five blocks with attention; bound by its matrix products."""

import argparse

import torch
from _steps import timed
from torch import nn
from torch.nn import functional
from torch.profiler import record_function

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=5)
parser.add_argument("--hidden", type=int, default=768)
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()
WIDTH, HEADS, LENGTH, BATCH, WORDS = 192, 6, 64, 6, 1500


class Block(nn.Module):
    """Attention, and a feed-forward network."""

    def __init__(self):
        super().__init__()
        self.norm, self.second_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.inputs, self.outputs = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up = nn.Linear(WIDTH, arguments.hidden)
        self.down = nn.Linear(arguments.hidden, WIDTH)

    def forward(self, x):
        """Add what attention and the network say."""
        split = self.inputs(self.norm(x)).view(BATCH, LENGTH, 3, HEADS, -1)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.outputs(seen.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH))
        with record_function("feed_forward"):
            return x + self.down(functional.gelu(self.up(self.second_norm(x))))


torch.manual_seed(0)
words, head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
blocks = nn.ModuleList(Block() for _ in range(arguments.layers))
parameters = [*words.parameters(), *blocks.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.01)
for _ in timed(range(arguments.steps)):
    tokens = torch.randint(0, WORDS, (BATCH, LENGTH + 1))
    state = words(tokens[:, :-1])
    for number, block in enumerate(blocks):
        with record_function(f"blocks.{number}"):
            state = block(state)
    loss = functional.cross_entropy(head(state).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
