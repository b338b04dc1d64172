"""Laws of the builder, on programs that nobody would write."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from polars.testing import assert_frame_equal

import nadi
from nadi.errors import PairError, UsageError
from nadi.files.chakra.et_decode import decode
from nadi.files.chakra.et_encode import encode
from nadi.models import Lane, job_builder
from nadi.simulation import link_table, results_of
from nadi.systems import Collectives, Dimension, Network, System, remote_tier
from nadi.trace import Job, validate_job, validate_trace
from nadi.trace.collectives import COLLECTIVES
from nadi.trace.issues import IssueLog
from tests.amounts import examples
from tests.formats.chakra_cases import raw_file

SETTINGS = settings(
    max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck)
)
ROOTED = ("broadcast", "scatter", "reduce", "gather")
SIZES = st.integers(1, 1 << 20)


@dataclass
class Step:
    """Work of one rank, or of several with each other: what it is, and where it is done."""

    kind: str
    ranks: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)
    lanes: tuple[int, ...] = ()  # of each rank
    waits: tuple[int, ...] = ()  # how many of its nodes ago; of each rank


@dataclass
class Written:
    """A drawn job: its ranks, groups, and steps in an order in which all can be done."""

    num_ranks: int
    groups: dict[str, tuple[int, ...]]
    steps: list[Step]

    def orders(self, seed: int | None) -> list[list[tuple[Step, int]]]:
        """Return what each rank does, in the order of the steps, or in a random one."""
        of_rank: list[list[tuple[Step, int]]] = [[] for _ in range(self.num_ranks)]
        for step in self.steps:
            for place, rank in enumerate(step.ranks):
                of_rank[rank].append((step, place))
        if seed is not None:
            for own in of_rank:
                random.Random(seed).shuffle(own)
                seed += 1
        return of_rank


LANES = st.integers(-1, 3)  # none, two streams, two threads


@st.composite
def written(draw: st.DrawFn, types: tuple[str, ...] = tuple(COLLECTIVES)) -> Written:
    num_ranks = draw(st.integers(2, 6))
    everybody = range(num_ranks)
    groups = {
        f"g{k}": tuple(sorted(draw(st.sets(st.sampled_from(everybody), min_size=1))))
        for k in range(draw(st.integers(0, 3)))
    }
    steps = [Step("metadata", (rank,)) for rank in everybody]
    for _ in range(draw(st.integers(0, 25))):
        kind = draw(st.sampled_from(["compute", "load", "store", "collective", "message"]))
        if kind == "collective":
            name = draw(st.sampled_from(["", *groups]))
            ranks = groups.get(name, tuple(everybody))
            comm_type = draw(st.sampled_from(types))
            options: dict[str, Any] = {"type": comm_type, "group": name or None}
            if comm_type != "barrier":
                options["bytes"] = draw(SIZES)
            if comm_type in ROOTED:
                options["root"] = draw(st.sampled_from(ranks))
        elif kind == "message":
            src, dst = draw(st.permutations(everybody))[:2]
            ranks = src, dst
            options = {"bytes": draw(SIZES), "tag": draw(st.none() | st.integers(0, 1))}
        else:
            ranks, options = (draw(st.sampled_from(everybody)),), {"bytes": draw(SIZES)}
            if kind == "compute":
                options = {"duration": draw(st.integers(0, 10**6))}
        lanes = tuple(draw(LANES) for _ in ranks)
        steps.append(
            Step(kind, ranks, options, lanes, tuple(draw(st.integers(0, 5)) for _ in ranks))
        )
    return Written(num_ranks, groups, steps)


def built(job: Written, seed: int | None = None) -> Job:
    """Write a drawn job with the builder; each rank in the order of steps, or shuffled."""
    with nadi.JobBuilder(job.num_ranks) as builder:
        for name, ranks in job.groups.items():
            builder.group(name, ranks)
        for rank, own in zip(builder.ranks, job.orders(seed), strict=True):
            nodes: list[nadi.models.BuiltNode] = []
            lanes: list[Lane] = [*(rank.stream(k) for k in range(2)),
                                 *(rank.thread(k) for k in range(2)), rank.unordered]  # fmt: skip
            for step, place in own:
                if step.kind == "metadata":
                    nodes.append(rank.metadata("begin"))
                    continue
                lane = lanes[step.lanes[place]]
                after = nodes[-step.waits[place] :][:1] if step.waits[place] else []
                if step.kind == "message":
                    call, peer = (lane.recv if place else lane.send), step.ranks[1 - place]
                    nodes.append(call(peer, **step.options, after=after))
                elif step.kind == "collective":
                    nodes.append(lane.collective(**step.options, after=after))
                else:
                    call_of = {"compute": lane.compute, "load": lane.load, "store": lane.store}
                    nodes.append(call_of[step.kind](step.kind, **step.options, after=after))
    return builder.job


def fully_connected(ranks: int, **options: Any) -> System:
    return System(
        Network((Dimension("fully-connected", ranks, 10.0, 100.0),)),
        remote_memory=remote_tier("per-rank", 10, 100), **options,
    )  # fmt: skip


@SETTINGS
@given(written())
def test_any_program_is_valid_and_is_simulated_to_its_end(job: Written) -> None:
    made = built(job)
    assert validate_job(made).is_empty()
    for trace in made.traces:
        assert validate_trace(trace).is_empty()
    done = nadi.simulate(made, fully_connected(job.num_ranks))
    ends = done.schedule.table["end"].to_numpy()
    assert (ends >= 0).all()
    assert ends.size == made.num_nodes
    # no rank is done before the work of any of its lanes
    for rank, own in enumerate(job.orders(None)):
        busy: Counter[int] = Counter()
        for step, place in own:
            if step.kind == "compute":
                busy[step.lanes[place]] += step.options["duration"]
        assert done.cycles[rank] >= max(busy.values(), default=0)


@SETTINGS
@given(written(("all_gather", "broadcast")))
def test_all_bytes_that_a_program_states_are_carried(job: Written) -> None:
    made = built(job)
    expected: Counter[tuple[int, int]] = Counter()
    collectives = Counter[str]()
    for step in job.steps:
        if step.kind == "message":
            expected[step.ranks] += step.options["bytes"]
        elif step.kind == "collective":
            senders = [step.options["root"]] if "root" in step.options else step.ranks
            pairs = itertools.product(senders, step.ranks)
            expected.update({pair: step.options["bytes"] for pair in pairs if len({*pair}) == 2})
            collectives[step.options["type"]] += 1
    direct = Collectives(all_gather=("direct",), broadcast=("direct",), chunks=1)
    done = nadi.simulate(made, fully_connected(job.num_ranks, collectives=direct))
    links = link_table(done).select("src", "dst", "bytes")
    carried = {(src, dst): size for src, dst, size in links.iter_rows() if size}
    assert carried == expected
    found = results_of(done).collectives
    assert Counter(found["type"].cast(str).to_list()) == collectives
    sent = sum(step.options["bytes"] for step in job.steps if step.kind == "message")
    for kind in ("COMM_SEND", "COMM_RECV"):
        stated = [trace.nodes.filter(kind=kind)["comm_bytes"].sum() for trace in made.traces]
        assert sum(stated) == sent


@SETTINGS
@given(written())
def test_any_program_is_read_as_it_was_written(job: Written) -> None:
    for trace in built(job).traces:
        content = b"".join(encode(trace, IssueLog()))
        read = decode(raw_file(content, "a.et"))
        for name in ("nodes", "deps", "groups", "issues"):
            assert_frame_equal(getattr(trace, name), getattr(read, name), categorical_as_str=True)
        assert b"".join(encode(read, IssueLog())) == content


@contextmanager
def nothing_checked() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_builder, "check_communication", lambda *_: None)
        yield


@settings(SETTINGS, max_examples=examples(300))
@given(written(), st.integers(0, 1000))
def test_what_is_refused_at_the_end_would_not_have_ended(job: Written, seed: int) -> None:
    """Each rank does its work in another order; the simulator says whether that can be done."""
    try:
        built(job, seed)
        refused = ""
    except UsageError as error:
        refused = str(error)
    if "are sent, but" in refused:
        return  # equal tags match in their order; the simulator also matches by size
    with nothing_checked():
        made = built(job, seed)
    try:
        nadi.simulate(made, fully_connected(job.num_ranks))
        stuck = ""
    except PairError as error:
        stuck = str(error)
    assert bool(refused) == bool(stuck), (refused, stuck)
