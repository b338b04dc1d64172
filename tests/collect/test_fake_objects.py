"""Objects that ranks gather are recorded as the collectives of this PyTorch's own functions."""

from __future__ import annotations

import importlib
import pickle
from typing import Any

import polars as pl
import pytest

from nadi.pytorch import fake_recording

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")
WORLD = 8


def collectives_of_torch(call: Any, rank: int) -> list[tuple[str, int]]:
    """Return type and bytes of what a function communicates: its own code, on real tensors."""
    found: list[tuple[str, int]] = []
    modes = importlib.import_module("torch.utils._python_dispatch")
    store = importlib.import_module("torch.testing._internal.distributed.fake_pg").FakeStore()

    class Listening(modes.TorchDispatchMode):  # type: ignore[misc, name-defined]
        def __torch_dispatch__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func._schema.name
            if name.startswith("c10d::"):
                sent = args[1]
                while isinstance(sent, list):
                    sent = sent[0]
                kind = "all_gather" if "all_gather" in name.replace("allg", "all_g") else "gather"
                found.append((kind, sent.nbytes))
            return func(*args, **(kwargs or {}))

    dist.init_process_group("fake", rank=rank, world_size=WORLD, store=store)
    try:
        with Listening():
            call()
    finally:
        dist.destroy_process_group()
    return found


def recorded_collectives(call: Any, rank: int) -> list[tuple[str, int]]:
    with fake_recording(WORLD, rank) as recording:
        dist.init_process_group("nccl")
        layer = torch.nn.Linear(8, 8, device="cuda")
        optimizer = torch.optim.SGD(layer.parameters())
        while True:
            layer(torch.ones(2, 8, device="cuda")).sum().backward()
            call()
            optimizer.step()
    nodes = recording.trace.nodes.filter(pl.col("comm_type") != "none")
    return list(nodes.select("comm_type", "comm_bytes").iter_rows())


def gather_for_all() -> None:
    metrics = {"loss": 0.5, "rank": dist.get_rank(), "words": ["a", "of"] * 20}
    found = [None] * WORLD
    dist.all_gather_object(found, metrics)
    assert found[3] == found[dist.get_rank()] == metrics


def gather_for_first() -> None:
    found: list[Any] | None = [None] * WORLD if dist.get_rank() == 0 else None
    dist.gather_object("what this rank found", found)


@pytest.mark.parametrize("rank", [0, 5])
def test_objects_gathered_for_all(rank: int) -> None:
    expected = collectives_of_torch(gather_for_all, rank)
    assert [kind for kind, _ in expected] == ["all_gather"] * 2
    assert recorded_collectives(gather_for_all, rank) == expected


@pytest.mark.parametrize("rank", [0, 5])
def test_objects_gathered_for_one(rank: int) -> None:
    found = recorded_collectives(gather_for_first, rank)
    size = len(pickle.dumps("what this rank found"))
    assert found == [("all_gather", 8), ("gather", size)]
    if rank == 0:  # another one's own code gets no sizes from a group that does nothing
        assert found == collectives_of_torch(gather_for_first, rank)


def test_tensors_without_values_count_with_their_elements() -> None:
    def call() -> None:
        dist.all_gather_object([None] * WORLD, {"made": torch.ones(1000, 10, device="cuda")})

    size = recorded_collectives(call, 1)[1][1]
    assert size == pytest.approx(len(pickle.dumps({"made": torch.ones(1000, 10)})), abs=32)


def test_all_ranks_send_as_much_as_the_last() -> None:
    from nadi.pytorch.fake.fake_distributed import _pickled_bytes

    largest = len(pickle.dumps({"rank": 1023}))
    assert {_pickled_bytes({"rank": one}, 1024) for one in (0, 255, 256, 1023)} == {largest}
