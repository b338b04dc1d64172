"""Every step is written to slow storage before the next begins: a policy trained step by step."""

import argparse
import io
import time

import torch
from _steps import timed
from torch import nn
from torch.profiler import record_function

parser = argparse.ArgumentParser()
parser.add_argument("--upload", type=float, default=25, help="ms; 0: nothing is written")
parser.add_argument("--games", type=int, default=4)
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 4))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)


def play():
    """Play one game of eight moves; gives the logarithms of what was chosen."""
    state, logs = torch.randn(64, 512), []
    for _ in range(8):
        log = policy(state).log_softmax(1)
        move = log.exp().multinomial(1)
        logs.append(log.gather(1, move))
        state = torch.roll(state, 1, 1) + 0.1 * move
    return torch.stack(logs).sum()


for _ in timed(range(arguments.steps)):
    played = []
    for game in range(arguments.games):
        with record_function(f"games.{game}"):
            played.append(play())
    optimizer.zero_grad()
    (-torch.stack(played).mean()).backward()
    optimizer.step()
    if arguments.upload:
        with record_function("upload"):
            torch.save(policy.state_dict(), io.BytesIO())
            time.sleep(arguments.upload / 1e3)
