"""Events of other tools are taken from columns as they would be read from the JSON of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nadi.files.files import RawFile
from nadi.files.json_file import Texts
from nadi.files.kineto.foreign_events import (
    EventArguments,
    ForeignEvents,
    ForeignRecording,
    JsonTexts,
    decode_events,
    kineto_content,
)
from nadi.files.kineto.kineto_trace import decode
from nadi.trace.issues import IssueLog

CATEGORIES = (
    "cpu_op", "kernel", "cuda_runtime", "user_annotation", "gpu_memcpy", "Operator", "overhead",
    "of no kind", "", "ac2g", "fwdbwd", "hip_api", "cpu_instant_event",
)  # fmt: skip
NAMES = ('gemm<"é">', "aten::mm", "ncclDevKernel_AllReduce", "", "a\\b\n", "ProfilerStep#3")
MEMBERS = (
    '"correlation":', '"device":', '"stream":', '"External id":', '"In msg nelems":', '"grid":',
    '"connection_id":',
    '"dtype":"Float"', '"Process Group Name":"1"', '"Collective name":"allreduce"', '"bytes":"x"',
    '"Comms Id":"17"', '"dtype":3', '"grid":[1,2,3]',
    '"block":[1],"stream":4',
)  # fmt: skip
NUM_NUMBERS = 7  # members that a number follows
FEW = (-(2**63), -1, 0, 7, 83, 2**62, 2**63 - 1)  # processes, threads, and odd times
RAW = RawFile("a.bin", *(np.zeros(1 << 20, dtype=np.uint8) for _ in range(2)))


def texts(random: np.random.Generator, words: tuple[str, ...], count: int) -> Texts:
    return Texts(random.integers(len(words), size=count).astype(np.int32), words)


def members(random: np.random.Generator, count: int) -> EventArguments:
    """Give events between none and four arguments, also the same one twice."""
    owner = np.repeat(np.arange(count), random.integers(0, 5, count))
    text = random.integers(len(MEMBERS), size=owner.size)
    value = random.choice([*FEW, *range(50)], owner.size)
    return EventArguments(owner, text, value, text < NUM_NUMBERS, list(MEMBERS))


def part(random: np.random.Generator, kind: int, count: int = 300) -> ForeignEvents:
    times = [random.integers(0, 10**6, count) for _ in range(2)]
    for column, at in zip(times, (0, 5), strict=True):  # no event has two odd times
        odd = column[at : at + 5]
        odd[:] = random.choice(FEW[1:], odd.size)
    args = {
        "correlation": random.integers(-1, 9, count),
        "block": JsonTexts(random.integers(-1, 2, count).astype(np.int32), ("[1]", "[2,3]")),
        "dtype": texts(random, ("Float", "no type"), count),
    }
    return ForeignEvents(
        category=texts(random, CATEGORIES, count), name=texts(random, NAMES, count),
        pid=random.choice(FEW, count), tid=random.choice(FEW, count),
        start=times[0], duration=times[1], args=args if kind == 1 else {},
        members=members(random, count) if kind == 2 else None, is_instant=kind == 3,
    )  # fmt: skip


@pytest.mark.parametrize("base", [0, 10**18])
@pytest.mark.parametrize("seed", range(4))
def test_columns_are_read_as_their_json_is(seed: int, base: int) -> None:
    random = np.random.default_rng(seed)
    parts = [part(random, kind) for kind in random.permutation([0, 1, 2, 3, 2, 1])]
    given = ForeignRecording([*parts, part(random, 2, 0)], IssueLog(), base, {"more": [1, "é"]})
    found = decode_events(RAW, given, "a tool")
    content = kineto_content(replace(given, log=IssueLog()), RAW)
    expected = decode(RAW.with_content(content))
    found.assert_equals(expected)
    assert found.issues.equals(expected.issues)
    assert found.attributes.table().equals(expected.attributes.table())
    assert found.process == expected.process
    assert found.issues["code"].to_list().count("kineto.odd-field") > 3
    assert (found.nodes["comm_bytes"] >= 0).any()
