"""Process groups of random communication, against a slow reading of the rules."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from nadi.recordings.communication.process_groups import Members, group_of_each, with_default_group
from nadi.trace.issues import IssueLog
from nadi.trace.schema import COMM_TYPES, GROUPS
from tests.amounts import ALL, examples


def test_members_are_found_by_their_place() -> None:
    for seed in range(examples(200)):
        rng = Random(seed)
        groups = [rng.sample(range(9), rng.randint(0, 4)) for _ in range(rng.randint(1, 5))]
        asked = [(rng.randint(-1, len(groups) - 1), rng.randint(-1, 5)) for _ in range(12)]
        members = Members(pl.Series(groups, dtype=GROUPS.dtypes["ranks"]))
        found = members.rank(*np.array(asked, dtype=np.int64).T)
        assert found.tolist() == [
            groups[g][place] if g >= 0 and 0 <= place < len(groups[g]) else -1 for g, place in asked
        ]
        assert members.size.tolist() == [len(group) for group in groups]


def slow_by_thread(threads: list[int], num_groups: int) -> list[int]:
    """Divide threads at the widest gaps between their numbers, if these exceed all others."""
    used = sorted(set(threads))
    gaps = sorted((-(b - a), at) for at, (a, b) in enumerate(pairwise(used)))
    widest, others = gaps[: num_groups - 1], gaps[num_groups - 1 :]
    within = max([1, *(-gap for gap, _ in others)])
    if len(used) < num_groups or any(-gap <= within for gap, _ in widest):
        return [-1] * len(threads)
    firsts = [used[at + 1] for _, at in widest]
    return [sum(first <= thread for first in firsts) for thread in threads]


def drawn(rng: Random) -> tuple[Any, pl.DataFrame, list[dict[str, Any]]]:
    """Draw communication, and the groups that it may be of."""
    num_groups = rng.choice((0, 1, 2, 2, 3))
    groups = GROUPS.build(num_groups, {
        "name": [str(k) for k in range(num_groups)],
        "backend": [rng.choice(("", "gloo", "gloo", "nccl", "cpu:gloo,cuda:nccl"))
                    for _ in range(num_groups)],
        "ranks": [list(range(rng.randint(0, 4))) for _ in range(num_groups)],
    })  # fmt: skip
    first = [rng.choice((10, 20, 21, 40)) for _ in range(3)]
    rows = [
        {"is_cpu": rng.random() < 0.8, "thread": rng.choice(first) + rng.randint(0, 2),
         "type": rng.choice(("all_reduce", "all_reduce", "broadcast", "send", "recv")),
         "recorded": rng.choice((-1, -1, rng.randrange(num_groups) if num_groups else -1))}
        for _ in range(rng.randint(1, 9))
    ]  # fmt: skip
    nodes = pl.DataFrame({"is_cpu": [row["is_cpu"] for row in rows]})
    thread = np.array([row["thread"] for row in rows])
    return SimpleNamespace(nodes=nodes, column=lambda _: thread), groups, rows


def test_groups_that_no_file_names() -> None:
    met: dict[str, int] = Counter()
    for seed in range(examples(300)):
        rng = Random(seed)
        trace, groups, rows = drawn(rng)
        types = np.array([COMM_TYPES.index(row["type"]) for row in rows])
        recorded = np.array([row["recorded"] for row in rows])
        log = IssueLog()
        found = group_of_each(trace, groups, np.arange(len(rows)), types, recorded, log).tolist()
        expected = recorded.tolist()
        sizes = [len(ranks) for ranks in groups["ranks"].to_list()]
        of_gloo = [k for k, backend in enumerate(groups["backend"]) if backend in ("", "gloo")
                   or "gloo" in backend]  # fmt: skip
        asked = [
            at for at, row in enumerate(rows)
            if row["is_cpu"] and row["type"] not in ("send", "recv") and row["recorded"] < 0
        ]  # fmt: skip
        number = (
            slow_by_thread([rows[at]["thread"] for at in asked], len(of_gloo)) if of_gloo else []
        )
        for at, row in enumerate(rows):
            if row["recorded"] >= 0 or not sizes:
                continue
            if len(sizes) == 1:
                expected[at] = 0
            elif row["is_cpu"] and row["type"] in ("send", "recv"):
                expected[at] = sizes.index(max(sizes))
            elif at in asked and of_gloo and number[asked.index(at)] >= 0:
                expected[at] = of_gloo[number[asked.index(at)]]
                met["by thread"] += 1
        assert found == expected, seed
        told = dict(log.table().select("code", "count").iter_rows())
        inferred = sum(e >= 0 > row["recorded"] for e, row in zip(expected, rows, strict=True))
        assert told.get("link.comm-group-inferred", 0) == inferred
        assert told.get("link.comm-group-unknown", 0) == expected.count(-1)
        met["inferred"] += inferred
        met["unknown"] += expected.count(-1)
    assert not ALL or min(met.values()) > 50, met


@pytest.mark.parametrize(
    ("streams", "world_size", "expected"),
    [
        ([(0, 0), (0, 0)], 2, [[0, 1]]),
        ([(0, 0), (0, 20)], 2, []),  # each group has a stream of its own
        ([(0, 20), (1, 20)], 2, []),
        ([(0, 20), (-1, -1)], 2, [[0, 1]]),  # on a thread
        ([], 3, [[0, 1, 2]]),
        ([(0, 7)], 1, [[0]]),
        ([(0, 7)], 0, []),
        ([(0, 7)], -1, []),
        ([(0, 7)], 2**17, [list(range(2**17))]),
        ([(0, 7)], 2**17 + 1, []),
    ],
)
def test_the_group_of_all_ranks_is_the_only_one_of_a_stream(
    streams: list[tuple[int, int]], world_size: int, expected: list[list[int]]
) -> None:
    # the last is a message, which says nothing of groups
    places = dict(zip(("device", "stream"), np.array([*streams, (9, 9)]).T, strict=True))
    trace: Any = SimpleNamespace(
        world_size=world_size, groups=GROUPS.empty(), column=lambda name: places[name]
    )
    types = np.array([COMM_TYPES.index("all_reduce")] * len(streams) + [COMM_TYPES.index("recv")])
    found = with_default_group(trace, np.arange(len(streams) + 1), types)
    assert found["ranks"].to_list() == expected
    assert found["name"].to_list() == ["0"] * len(expected)


def test_the_members_of_all_ranks_are_filled_in() -> None:
    groups = GROUPS.build(3, {"name": ["0", "1", "0"], "ranks": [[], [], [1]]})
    for world_size, ranks in ((2, [[0, 1], [], [1]]), (0, [[], [], [1]])):
        trace: Any = SimpleNamespace(world_size=world_size, groups=groups)
        none = np.empty(0, dtype=np.int64)
        assert with_default_group(trace, none, none)["ranks"].to_list() == ranks
