"""A hundred and twenty-eight small parameters bound the step: Adam takes them one by one."""

import argparse

import torch
from _steps import timed
from torch import nn
from torch.profiler import record_function

parser = argparse.ArgumentParser()
parser.add_argument("--clip", type=int, default=1, help="0: gradients are not clipped")
parser.add_argument("--trained", type=int, default=64, help="layers of which the weights change")
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()

torch.manual_seed(0)
layers = nn.ModuleList(nn.Linear(128, 128) for _ in range(64))
trained = [*layers[: arguments.trained].parameters()]
optimizer = torch.optim.Adam(trained, lr=1e-3, foreach=False)
for _ in timed(range(arguments.steps)):
    state = torch.randn(16, 128)
    for layer in layers:
        state = state + torch.tanh(layer(state))
    layers.zero_grad()
    state.pow(2).mean().backward()
    if arguments.clip:
        with record_function("clip"):
            for weight in layers.parameters():
                size = weight.grad.norm()
                weight.grad.mul_(1 / size.clamp(min=1))
    optimizer.step()
