"""Beam search with a recurrent network: many small operations, no optimizer, no gradients."""

import argparse

import torch
from _steps import timed
from torch import nn
from torch.profiler import record_function

parser = argparse.ArgumentParser()
parser.add_argument("--length", type=int, default=24)
parser.add_argument("--repeats", type=int, default=1, help="0: repeated words are not forbidden")
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()
BEAMS, WORDS, WIDTH = 4, 12000, 192

torch.manual_seed(0)
words, cell, head = nn.Embedding(WORDS, WIDTH), nn.GRUCell(WIDTH, WIDTH), nn.Linear(WIDTH, WORDS)


@torch.inference_mode()
def answer():
    """Search the best words."""
    state, scores = torch.randn(BEAMS, WIDTH), torch.zeros(BEAMS)
    chosen = torch.zeros(BEAMS, 1, dtype=torch.long)
    for place in range(arguments.length):
        half = "first_half" if place < 12 else "second_half"
        with record_function(half):
            state = cell(words(chosen[:, -1]), state)
            logs = head(state).log_softmax(1)
            if arguments.repeats:
                with record_function("forbid_repeats"):
                    for beam in range(BEAMS):
                        logs[beam].index_fill_(0, chosen[beam, -4:], -1e9)
            scores, places = (scores[:, None] + logs).flatten().topk(BEAMS)
            parents = places // WORDS
            chosen = torch.cat([chosen[parents], (places % WORDS)[:, None]], 1)
            state = state[parents]
    return chosen[0].tolist()


for _ in timed(range(arguments.steps)):
    answer()
