"""Three modules run in turn for each token that is decoded, without a model around them."""

import argparse

import torch
from _steps import timed
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--mixed", type=int, default=12, help="how often a state is mixed for a token")
parser.add_argument("--words", type=int, default=6000, help="among which a token is chosen")
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()
BEAMS, WIDTH, KEPT = 4, 256, 48


class Reader(nn.Module):
    """Join the last token to the state."""

    def __init__(self):
        super().__init__()
        self.embedding, self.joined = nn.Embedding(6000, WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, token, state):
        """Give the next state."""
        return torch.tanh(self.joined(torch.cat([self.embedding(token), state], 1)))


class Mixer(nn.Module):
    """Look at the states of earlier tokens, several times."""

    def __init__(self):
        super().__init__()
        self.asked, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, state, earlier):
        """Give the mixed state."""
        for _ in range(arguments.mixed):
            weights = (earlier @ self.asked(state)[:, :, None]).softmax(1)
            state = self.norm(state + (weights * earlier).sum(1))
        return state


class Chooser(nn.Module):
    """Choose a token."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(WIDTH, arguments.words)

    def forward(self, state):
        """Give the most likely token of each beam."""
        return self.head(state).log_softmax(1).argmax(1)


torch.manual_seed(0)
torch.set_grad_enabled(False)
reader, mixer, chooser = Reader(), Mixer(), Chooser()
state, earlier = torch.randn(BEAMS, WIDTH), torch.randn(BEAMS, KEPT, WIDTH)
token = torch.zeros(BEAMS, dtype=torch.long)
for _ in timed(range(arguments.steps)):
    state = mixer(reader(token, state), earlier)
    earlier = torch.cat([earlier[:, 1:], state[:, None]], 1)
    token = chooser(state)
