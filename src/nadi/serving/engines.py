"""Serve requests on engines of given rules, with given times of steps."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.serving.engine_columns import (
    BATCH,
    BLOCK,
    CACHE,
    CHANNEL,
    FAR,
    FLIGHT,
    INSTANCE,
    REASONS,
    REQUEST,
    SETTING,
    TIER,
    Engines,
)
from nadi.serving.requests import Requests
from nadi.serving.scheduler_kernels import serve_requests
from nadi.serving.step_times import StepTimes
from nadi.trace.arrays import Floats, Ints

ROUTING = ("turns", "least", "session")
BOUND_BY = ("arrivals", "tokens", "sequences", "blocks", "loads", "prompts")
"""Why no more requests were in a step: none waited, it was full, memory was, loads were slow, or
prompts waited for more of them."""


class CacheTier(NamedTuple):
    """A memory behind the devices', for blocks of keys and values.

    Attributes
    ----------
    name
        What it is called.
    blocks
        How many one of it holds.
    sharing
        How many neighboring groups of all instances have one in common.
    link_ns, memory_ns
        Time of a block on an instance's link, and of reading it in the memory, which all its users
        share.
    latency
        Of a transfer, in ns.
    duplex
        Whether the memory reads and writes at once.
    store_ns
        Time of writing a block in the memory; below 0 as of reading it.
    link
        Which of an instance's links leads to it: a row of ``StepTimes.wires``.
    """

    name: str
    blocks: int
    sharing: int
    link_ns: float
    memory_ns: float
    latency: int = 0
    duplex: bool = True
    store_ns: float = -1.0
    link: int = 0

    def memories(self, groups: int) -> int:
        """Return how many of it so many groups have."""
        return -(-groups // self.sharing)


class InstanceKind(NamedTuple):
    """In what instances that only read prompts can differ from others.

    Attributes
    ----------
    blocks
        Of the memory of an instance, or of each of its groups.
    stages
        Of a pipeline.
    moved_ns
        Time of a block on its link to other instances.
    tiers
        Behind the devices' memory, first to last; each holds what the one of others holds.
    groups
        Of its ranks, that each have requests of their own (data parallel attention).
    """

    blocks: int
    stages: int = 1
    moved_ns: float = 0.0
    tiers: tuple[CacheTier, ...] = ()
    groups: int = 1


class EngineRules(NamedTuple):
    """How engines work; by default as vLLM does.

    Attributes
    ----------
    budget
        Tokens of a step at most, of each group: longer prompts are read in chunks.
    sequences
        Running requests at most, of each group.
    block
        Tokens of a block of keys and values.
    blocks
        Of the memory of an instance, or of each of its groups.
    overlaps
        Whether the next step is prepared while one runs (async scheduling).
    reserves
        Whether a request is admitted only if its whole prompt has room.
    reuses
        Whether prompts that begin alike share blocks (prefix caching).
    instances, prefills
        How many there are; how many of them only read prompts, if those are apart.
    stages
        Of a pipeline.
    routing
        Of ``turns``, ``least`` (requests) and ``session``.
    host, launch
        ns of the host's part of a step, and what it takes longer to launch one that reads prompts.
    wait_steps, wait_tokens
        Steps for which prompts wait at most for more of them, while others generate; and tokens of
        a step from which they do not. Where an instance has groups, each of them needs so many,
        and a prompt.
    drafts, acceptance
        Tokens that a step guesses for each request, and the chance that a guess is right.
    moved_ns, moved_link
        Time of a block on an instance's link to others, and which of its links that is.
    tiers
        Behind the devices' memory, first to last.
    prefill
        What instances have that only read prompts; by default what others have.
    seed
        Of guesses.
    groups
        Of an instance's ranks, that each have requests of their own (data parallel attention), and
        step together.
    """

    budget: int = 2048
    sequences: int = 256
    block: int = 16
    blocks: int = 0
    overlaps: bool = True
    reserves: bool = True
    reuses: bool = True
    instances: int = 1
    prefills: int = 0
    stages: int = 1
    routing: str = "turns"
    host: int = 0
    drafts: int = 0
    acceptance: float = 0.0
    moved_ns: float = 0.0
    moved_link: int = 0
    tiers: tuple[CacheTier, ...] = ()
    prefill: InstanceKind | None = None
    seed: int = 0
    launch: int = 0
    wait_steps: int = 0
    wait_tokens: int = 0
    groups: int = 1

    @property
    def kinds(self) -> tuple[InstanceKind, InstanceKind]:
        """Instances that only read prompts, and others."""
        others = InstanceKind(self.blocks, self.stages, self.moved_ns, self.tiers, self.groups)
        return self.prefill or others, others

    @property
    def reading_groups(self) -> int:
        """Groups of all instances that only read prompts."""
        return self.prefills * self.kinds[0].groups

    @property
    def all_groups(self) -> int:
        """Groups of all instances: those that only read prompts, and then the others."""
        return self.reading_groups + (self.instances - self.prefills) * self.groups


class TierTraffic(NamedTuple):
    """Blocks that were read from a tier and written to it, and ns that its memory took for them."""

    read: int
    written: int
    busy: int


class ServedRequests(NamedTuple):
    """When requests were served, and what instances did.

    Attributes
    ----------
    arrival, queued, first, last
        int64 ns, shape (requests,): when each came, when the engine saw it, when its first and
        its last token were there.
    prompt, output
        Tokens.
    hits, put_out
        Tokens of each that were found or loaded; how often it was put out.
    instances
        Sums of each group by name: int64, shape (groups of all instances,). What is of steps is
        that of an instance's first group.
    bound
        ns of steps by why no more requests were in them: ``BOUND_BY``.
    tiers
        What was moved to and from each tier.
    """

    arrival: Ints
    queued: Ints
    first: Ints
    last: Ints
    prompt: Ints
    output: Ints
    hits: Ints
    put_out: Ints
    instances: dict[str, Ints]
    bound: dict[str, int]
    tiers: tuple[TierTraffic, ...]


def serve_on_engines(
    requests: Requests, rules: EngineRules, times: Sequence[StepTimes]
) -> ServedRequests:
    """Serve requests.

    Parameters
    ----------
    times
        Of instances that only read prompts, and of the others; the same twice if all are alike.

    Raises
    ------
    UsageError
        If a request does not fit the memory of an instance.
    """
    _check_room(requests, rules)
    engines = _engines(requests, rules, times)
    if serve_requests(engines):
        raise UsageError(
            Parameter("requests"), "some can never go on", "give their instances more memory"
        )
    rows, here = engines.requests, engines.instances
    sums = {name: here[:, getattr(INSTANCE, name)].copy() for name in _SUMS}
    bound = here[:, INSTANCE.bound : INSTANCE.bound + REASONS].sum(axis=0).tolist()
    columns = {name: rows[:, getattr(REQUEST, name)].copy() for name in _KEPT}
    return ServedRequests(
        instances=sums, bound=dict(zip(BOUND_BY, bound, strict=True)),
        tiers=tuple(_use(engines, row, rules) for row in range(len(rules.tiers))), **columns,
    )  # fmt: skip


def _use(engines: Engines, row: int, rules: EngineRules) -> TierTraffic:
    """Add up what the memory of a tier moved; of links it is the same."""
    tier = engines.tiers[row]
    many = rules.tiers[row].memories(rules.all_groups)
    memory = engines.channels[tier[TIER.memory] : tier[TIER.memory] + many]
    moved = memory[:, CHANNEL.moved : CHANNEL.moved + 2].sum(axis=0).tolist()
    return TierTraffic(moved[0], moved[1], int(memory[:, CHANNEL.busy].sum()))


_KEPT = ("arrival", "queued", "first", "last", "prompt", "output", "hits", "put_out")
_SUMS = (
    "steps", "busy", "dense", "memory", "network", "prefill", "decode", "heads", "host", "beside",
    "tokens", "hit_tokens", "loaded_tokens", "lost_tokens", "put_out", "in_system", "most_blocks",
)  # fmt: skip


def _check_room(requests: Requests, rules: EngineRules) -> None:
    prefill, other = (one.blocks for one in rules.kinds)
    longest = int((requests.prompt + requests.output).max()) + rules.drafts
    needs = [(longest, other, "an instance")]
    if rules.prefills:
        reads = "an instance that only reads prompts"
        needs.append((int(requests.prompt.max()) + 1, prefill, reads))
    for tokens, blocks, who in needs:
        if -(-tokens // rules.block) > blocks:
            raise UsageError(
                Parameter("requests"),
                f"one has {tokens} tokens, and {who} has room for {blocks * rules.block}",
                "give it more memory, or leave the request out",
            )  # fmt: skip


def _engines(requests: Requests, rules: EngineRules, times: Sequence[StepTimes]) -> Engines:
    num, groups = requests.arrival.size, rules.all_groups
    longest = int((requests.prompt + requests.output).max()) + rules.drafts
    tables = (groups, 2 * rules.sequences, -(-longest // rules.block) + 1)
    rows = np.zeros((num, len(REQUEST)), dtype=np.int64)
    _fill_requests(rows, requests, rules)
    free = np.flatnonzero(requests.follows < 0)
    here = _instances(rules)
    depth = int(here[:, INSTANCE.depth].max())
    links = 1 + max(rules.moved_link, *(tier.link for tier in rules.tiers), 0)
    caches, blocks, places, tiers, channels, pace = _memories(rules, links)
    axes, grid, crowded = _grids(times)
    return Engines(
        settings=_settings(rules, links), requests=rows, content=requests.content,
        arrivals=free[np.argsort(requests.arrival[free], kind="stable")],
        heap=np.zeros((num + 1, 2), dtype=np.int64), instances=here,
        wake=np.full(groups, FAR, dtype=np.int64),
        running=np.zeros((groups, rules.sequences), dtype=np.int64),
        loading=np.zeros((groups, rules.sequences), dtype=np.int64),
        slots=np.tile(np.arange(2 * rules.sequences)[::-1], (groups, 1)),
        tables=np.zeros(tables, dtype=np.int64),
        flights=np.zeros((groups, depth, len(FLIGHT)), dtype=np.int64),
        events=np.zeros((groups, depth, 2 * rules.sequences), dtype=np.int64),
        caches=caches, blocks=blocks, places=places, tiers=tiers, channels=channels,
        batch=np.zeros((groups, len(BATCH)), dtype=np.int64),
        chunks=np.zeros((groups, rules.sequences, 2), dtype=np.int64),
        spent=np.zeros((groups, 2)), pace=pace,
        wires=np.stack([one.by_links(rules.budget, links) for one in times]),
        kept=np.zeros((groups, depth, links)),
        dense=np.stack([one.by_tokens(rules.budget) for one in times]),
        heads=np.stack([one.by_rows(max(rules.sequences, rules.budget)) for one in times]),
        axes=axes, attention=grid, crowded=crowded,
    )  # fmt: skip


def _instances(rules: EngineRules) -> Ints:
    """Lay out the groups of all instances, neighbors those of one."""
    here = np.zeros((rules.all_groups, len(INSTANCE)), dtype=np.int64)
    here[:, INSTANCE.head] = here[:, INSTANCE.tail] = -1
    here[:, INSTANCE.slots] = 2 * rules.sequences
    here[:, INSTANCE.sleeps] = 1
    number = np.arange(rules.all_groups)
    groups = _by_group(rules, [one.groups for one in rules.kinds])
    place = np.where(number < rules.reading_groups, number, number - rules.reading_groups)
    here[:, INSTANCE.groups], here[:, INSTANCE.lead] = groups, number - place % groups
    stages = _by_group(rules, [one.stages for one in rules.kinds])
    here[:, INSTANCE.stages] = stages
    here[:, INSTANCE.depth] = np.where(stages > 1, stages, 2 if rules.overlaps else 1)
    return here


def _by_group(rules: EngineRules, of_kinds: Sequence[int]) -> Ints:
    """Give what groups have of which it is known for both kinds of instances."""
    which = np.arange(rules.all_groups) < rules.reading_groups
    return np.where(which, *of_kinds).astype(np.int64)


def _settings(rules: EngineRules, links: int) -> Ints:
    settings = np.zeros(len(SETTING), dtype=np.int64)
    for name in ("budget", "sequences", "block", "host", "launch", "wait_steps", "wait_tokens",
                 "drafts", "seed", "reserves", "reuses"):  # fmt: skip
        settings[getattr(SETTING, name)] = getattr(rules, name)
    settings[SETTING.instances] = rules.all_groups
    settings[SETTING.prefills] = rules.reading_groups
    settings[SETTING.links] = links
    settings[SETTING.routing] = ROUTING.index(rules.routing)
    settings[SETTING.hidden] = rules.overlaps
    settings[SETTING.accepted] = round(rules.acceptance * 2**53)
    settings[SETTING.tiers] = len(rules.tiers)
    return settings


def _fill_requests(rows: Ints, requests: Requests, rules: EngineRules) -> None:
    """Write what is known of requests before they are served."""
    rows[:, REQUEST.arrival] = rows[:, REQUEST.pause] = requests.arrival
    rows[:, REQUEST.prompt] = rows[:, REQUEST.known] = requests.prompt
    rows[:, REQUEST.output], rows[:, REQUEST.stream] = requests.output, requests.stream
    rows[:, REQUEST.group], rows[:, REQUEST.shared] = (
        requests.group, np.minimum(requests.shared, requests.prompt) // rules.block
    )  # fmt: skip
    rows[:, REQUEST.told] = requests.told
    rows[:, REQUEST.content] = np.cumsum(requests.told) - requests.told
    rows[:, REQUEST.follower] = rows[:, REQUEST.next] = rows[:, REQUEST.instance] = -1
    later = np.flatnonzero(requests.follows >= 0)
    rows[requests.follows[later], REQUEST.follower] = later


def _memories(rules: EngineRules, links: int) -> tuple[Ints, Ints, Ints, Ints, Ints, Floats]:
    """Lay out the blocks of instances and tiers, and the channels between them: links first."""
    sizes = _by_group(rules, [one.blocks for one in rules.kinds]).tolist()
    tiers, num_channels = [], links * rules.all_groups
    for tier in rules.tiers:
        many = tier.memories(rules.all_groups)
        tiers.append((len(sizes), tier.sharing, tier.link, num_channels, tier.latency,
                      int(tier.duplex)))  # fmt: skip
        sizes += [max(1, tier.blocks)] * many
        num_channels += many
    tiers.append((0, 1, rules.moved_link, 0, 0, 1))  # between instances
    pace = [
        [
            *((tier.link_ns, tier.memory_ns, tier.memory_ns if tier.store_ns < 0 else tier.store_ns)
              for tier in kind.tiers),
            (kind.moved_ns, 0.0, 0.0),
        ] for kind in rules.kinds
    ]  # fmt: skip
    caches = np.zeros((len(sizes), len(CACHE)), dtype=np.int64)
    size = np.array(sizes)
    first = np.cumsum(size) - size
    place_sizes = 2 ** np.ceil(np.log2(2 * size + 2)).astype(np.int64)
    caches[:, CACHE.first] = caches[:, CACHE.head] = first
    caches[:, CACHE.size] = caches[:, CACHE.free] = size
    caches[:, CACHE.place] = np.cumsum(place_sizes) - place_sizes
    caches[:, CACHE.mask] = place_sizes - 1
    caches[:, CACHE.tail] = first + size - 1
    number = np.arange(int(size.sum()))
    blocks = np.zeros((number.size, len(BLOCK)), dtype=np.int64)
    blocks[:, BLOCK.before], blocks[:, BLOCK.after] = number - 1, number + 1
    blocks[first, BLOCK.before] = blocks[first + size - 1, BLOCK.after] = -1
    places = np.zeros(int(place_sizes.sum()), dtype=np.int64)
    channels = np.zeros((num_channels, len(CHANNEL)), dtype=np.int64)
    return (caches, blocks, places, np.array(tiers, dtype=np.int64).reshape(-1, len(TIER)),
            channels, np.array(pace, dtype=float))  # fmt: skip


def _grids(times: Sequence[StepTimes]) -> tuple[Floats, Floats, Floats]:
    """Put the grids of attention of both roles into one array."""
    points = max(axis.size for axis in times[0].axes)
    axes = np.zeros((4, points))
    for row, axis in zip(axes, times[0].axes, strict=True):
        row[: axis.size] = axis
    crowded = [one.attention[:, :, 0, 0] if one.crowded is None else one.crowded for one in times]
    return axes, np.stack([one.attention for one in times]), np.stack(crowded)
