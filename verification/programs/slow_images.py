"""A worker process of a DataLoader prepares images more slowly than the network trains."""

import argparse

import numpy as np
import torch
from _steps import timed
from torch import nn
from torch.profiler import record_function
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=14, help="of augmentation")
parser.add_argument("--deep", type=int, default=1, help="0: without the second layer")
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()


class Images(Dataset):
    """Images that are made when they are asked for."""

    def __len__(self):
        """Give the number of images."""
        return 8 * arguments.steps

    def __getitem__(self, index):
        """Make one, and distort it slowly."""
        random = np.random.default_rng(index)
        image = random.random((3, 48, 48), dtype=np.float32)
        for _ in range(arguments.rounds):
            image = np.sort(np.roll(image, int(random.integers(9)), axis=2), axis=1)
            image = np.clip(image * random.uniform(0.9, 1.1), 0, 1).astype(np.float32)
            image = np.median(np.stack([np.roll(image, n, axis=1) for n in range(3)]), axis=0)
        return torch.from_numpy(image.astype(np.float32)), index % 10


def main():
    """Train."""
    torch.manual_seed(0)
    first = nn.Conv2d(3, 16, 3, padding=1)
    second = nn.Conv2d(16, 16, 3, padding=1)
    head = nn.Linear(16 * 12 * 12, 10)
    network = nn.ModuleList([first, second, head])
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    for x, y in timed(DataLoader(Images(), batch_size=8, num_workers=1)):
        state = torch.relu(first(x))
        if arguments.deep:
            with record_function("second_layer"):
                state = torch.relu(second(state))
        out = head(nn.functional.max_pool2d(state, 4).flatten(1))
        optimizer.zero_grad()
        nn.functional.cross_entropy(out, y).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
