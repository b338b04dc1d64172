"""A generator and a critic with an optimizer each; the critic trains three times a step."""

import argparse

import torch
from _steps import timed
from torch import nn
from torch.profiler import record_function

parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=3, help="of the critic in a step")
parser.add_argument("--deep", type=int, default=1, help="0: the generator has a layer less")
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()

torch.manual_seed(0)
critic = nn.Sequential(
    nn.Conv2d(3, 24, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(24, 48, 4, 2, 1), nn.LeakyReLU(0.2),
    nn.Flatten(), nn.Linear(48 * 64, 1),
)  # fmt: skip
start, middle = nn.ConvTranspose2d(32, 48, 8), nn.Conv2d(48, 48, 3, padding=1)
end = nn.Sequential(
    nn.ReLU(), nn.ConvTranspose2d(48, 24, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(24, 3, 4, 2, 1),
    nn.Tanh(),
)  # fmt: skip
generator = nn.ModuleList([start, middle, end])
for_critic = torch.optim.Adam(critic.parameters(), lr=2e-4)
for_generator = torch.optim.Adam(generator.parameters(), lr=2e-4)


def draw():
    """Make images from noise."""
    state = start(torch.randn(12, 32, 1, 1))
    if arguments.deep:
        with record_function("middle_layer"):
            state = torch.relu(middle(state))
    return end(state)


for _ in timed(range(arguments.steps)):
    for number in range(arguments.rounds):
        with record_function(f"critic_round.{number}"):
            with torch.no_grad():
                false = draw()
            true = torch.rand(12, 3, 32, 32)
            loss = (critic(false) - critic(true)).mean() + critic(true).pow(2).mean()
            for_critic.zero_grad()
            loss.backward()
            for_critic.step()
    with record_function("generator_round"):
        loss = -critic(draw()).mean()
        for_generator.zero_grad()
        loss.backward()
        for_generator.step()
