"""Make a job from a model: ranks, programs, communication that fits, sizes and durations.

Draw programs from a model: the operations of ranks in their order, without sizes and times.

The ranks of a job of another size: which learned rank each is like, and its process groups.

Ranks are added along one axis: ranks of one program that stand evenly apart and form process
groups, which are data parallel; without such groups all ranks together. A group with all ranks
along the axis grows with it. Others are copied, as are messages.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nadi.errors import InputError, Parameter, UsageError, checked
from nadi.files.files import available_memory
from nadi.models.job_rows import joined_ranges
from nadi.recordings.rank_spread import nearly_alike, parts_between
from nadi.sharing.synthesis.agreed_meetings import Meeting, matched_meetings, without_deadlock
from nadi.sharing.synthesis.back_off import BackOff
from nadi.sharing.synthesis.column_traces import job_of_columns
from nadi.sharing.synthesis.drawn_quantities import (
    JobSize,
    Noise,
    TokenQuantities,
    check_width,
    context_scores,
    draw_durations,
    drawn_steps,
    quantities_at,
    sizes_of_job,
    with_times_of,
)
from nadi.sharing.synthesis.grammar import Repeat
from nadi.sharing.synthesis.job_columns import JobColumns, RankColumns
from nadi.sharing.synthesis.learned_model import (
    END,
    FIRST_START,
    Quantities,
    Role,
    Template,
    TraceModel,
)
from nadi.sharing.synthesis.memory_growth import made_at
from nadi.sharing.synthesis.quantities import EDGES, contexts_of_steps
from nadi.sharing.synthesis.step_course import on_course, on_more_ranks, step_parts_of
from nadi.sharing.synthesis.storage_lives import Growth, Made, StorageLives, draw_lives
from nadi.sharing.synthesis.tokens import WORLD, Token, alike_tokens, form_of
from nadi.trace.arrays import Hashes, Ints
from nadi.trace.schema import NODE_KINDS
from nadi.trace.trace import Job


class _Axis(NamedTuple):
    """Ranks along which a job grows: ``size`` of them, ``stride`` apart."""

    stride: int
    size: int


class RankLayout(NamedTuple):
    """The ranks of a new job."""

    template: Template  # the job that it is like
    axis: _Axis  # along which ranks are added
    size: int  # ranks along the axis of the new job

    @property
    def num_ranks(self) -> int:
        """Number of ranks of the new job."""
        return self.template.num_ranks // self.axis.size * self.size

    def learned_rank(self, rank: int) -> int:
        """Return the rank of the template that does what a new rank does."""
        high, place, low = self._parts(rank, self.size)
        return self._rank(high, place % self.axis.size, low, self.axis.size)

    def is_copy(self, rank: int) -> bool:
        """Return whether a new rank is beside one that does as a learned rank did."""
        return self._parts(rank, self.size)[1] >= self.axis.size

    def new_rank(self, learned: int, beside: int) -> int:
        """Return the new rank of a learned one in the copy of another; -1 if it is left out."""
        copy = self._parts(beside, self.size)[1] // self.axis.size
        high, place, low = self._parts(learned, self.axis.size)
        place += copy * self.axis.size
        return self._rank(high, place, low, self.size) if place < self.size else -1

    def group(self, ranks: Sequence[int], beside: int) -> tuple[int, ...]:
        """Return the new ranks of a learned group that has the learned rank of ``beside``."""
        lines = {self._parts(one, self.axis.size)[::2] for one in ranks}
        if len(lines) * self.axis.size == len(ranks):  # all along the axis
            every = range(self.size)
            grown = [self._rank(high, at, low, self.size) for high, low in lines for at in every]
            return tuple(sorted(grown))
        found = (self.new_rank(one, beside) for one in ranks)
        return tuple(sorted(one for one in found if one >= 0))

    def groups_of(self, rank: int) -> dict[tuple[tuple[int, ...], int], tuple[int, ...]]:
        """Return the members of a rank's groups by form and place among those of that form."""
        world = self.template.num_ranks
        found: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {
            (WORLD, 0): tuple(range(self.num_ranks))
        }
        count: dict[tuple[int, ...], int] = {}
        for ranks in self.template.groups[self.learned_rank(rank)]:
            form = form_of(ranks, world)
            if form != WORLD:
                found[form, count.get(form, 0)] = self.group(ranks, rank)
                count[form] = count.get(form, 0) + 1
        return found

    def _parts(self, rank: int, size: int) -> tuple[int, int, int]:
        rest, low = divmod(rank, self.axis.stride)
        return *divmod(rest, size), low

    def _rank(self, high: int, place: int, low: int, size: int) -> int:
        return (high * size + place) * self.axis.stride + low


def layout_of(template: Template, num_ranks: int) -> RankLayout:
    """Return the layout of a job with another number of ranks; 0 for as many as learned.

    - Raises UsageError if ranks cannot be added one by one, and the number is not a multiple of how
      many are added at once.
    """
    axis = _axis(template)
    if not num_ranks:
        return RankLayout(template, axis, axis.size)
    at_once = template.num_ranks // axis.size
    if num_ranks % at_once:
        raise UsageError(
            Parameter("ranks", num_ranks), f"the learned job grows by {at_once} ranks at once",
            f"give a multiple of {at_once}",
        )  # fmt: skip
    return RankLayout(template, axis, num_ranks // at_once)


def _axis(template: Template) -> _Axis:
    """Return data parallel ranks, those furthest apart; without such groups all ranks."""
    world = template.num_ranks
    best = _Axis(1, world)
    forms = {ranks for own in template.groups for ranks in own}
    for axis in {_Axis(one[1] - one[0], len(one)) for one in forms if 1 < len(one) < world}:
        lines = {
            tuple(range(first, first + axis.stride * axis.size, axis.stride))
            for high in range(0, world, axis.stride * axis.size)
            for first in range(high, high + axis.stride)
        }
        if world % (axis.stride * axis.size) or not lines <= forms:
            continue
        alike = all(len({template.role[rank] for rank in line}) == 1 for line in lines)
        if alike and (best.size == world or axis.stride > best.stride):
            best = axis
    return best


_MOST = 2
"""Times the longest sequence and the largest step that were learned, after which one ends."""
_BYTES_OF_OPERATION = 300  # of a job while it is made
_DEEPEST = 100  # repeats within repeats
_REPEATED = 100  # times that a sequence goes through what was counted, at most


class ProgramDraws:
    """Draws the steps of ranks.

    A file of a model may state any lengths: what is drawn is bounded by the file's own size, and
    what repeats of it become by the memory that is free.
    """

    def __init__(self, model: TraceModel) -> None:
        self._model = model
        self._left = 0  # operations that a step may still get
        self._is_cut = False  # whether it would have got more
        self._unseen = 0  # symbols of which one is chosen that a step may still look at
        self._most = available_memory() // _BYTES_OF_OPERATION  # operations of a job
        self._room = self._most  # that are left for different programs
        self._symbols_known = max(one.symbol.size for one in model.counts)
        self._sequences = BackOff(model.counts)

    def check_room(self, operations: int) -> None:
        """Raise InputError if a job has more operations than the memory that is free holds."""
        if operations > self._most:
            raise InputError(
                "job", f"it has over {self._most:,} operations, more than the memory that is free "
                "holds", "give fewer ranks, layers or steps, or a model of a smaller job",
            )  # fmt: skip

    def steps(
        self, role: Role, num_steps: int, layers: int, random: np.random.Generator
    ) -> list[Ints]:
        """Return the tokens of each step of a role; int64, shape (operations,) each.

        - ``layers``: How many each rank has; as many as learned if it is those of the role.
        """
        found = []
        deeper = max(layers / role.layers, 1.0) if role.layers else 1.0
        for number in range(num_steps):
            wanted = round(_MOST * self._model.largest * deeper)
            self._left, self._is_cut = min(wanted, self._room), False
            self._unseen = _REPEATED * self._symbols_known
            start = role.later_step if number else role.first_step
            found.append(self._drawn(start, len(self._model.rules), role, layers, random))
            is_short = self._is_cut and wanted > self._room
            self._room -= found[-1].size
            self.check_room(self._most + 1 if is_short else self._most - self._room)
        return found

    def _drawn(
        self, start: int, below: int, role: Role, layers: int, random: np.random.Generator,
        depth: int = 0,
    ) -> Ints:  # fmt: skip
        """Draw a sequence whose rules have numbers below one, and write out its repeats."""
        symbols = self._symbols(start, below if depth < _DEEPEST else 0, random)
        pieces: list[Ints] = []
        at = 0
        for place, one in enumerate(symbols):
            if one >= 0:
                continue
            pieces.append(np.array(symbols[at:place], dtype=np.int64))
            rule = self._model.rules[-1 - one]
            body = self._drawn(FIRST_START - 1 - one, -1 - one, role, layers, random, depth + 1)
            turns = _turns(rule, role.layers, layers)
            most = 1 + max(self._left, 0) // max(body.size, 1)
            self._is_cut |= turns > most
            turns = min(turns, most)
            self._left -= (turns - 1) * body.size
            pieces.append(np.tile(body, turns))
            at = place + 1
        pieces.append(np.array(symbols[at:], dtype=np.int64))
        return np.concatenate(pieces)

    def _symbols(self, start: int, below: int, random: np.random.Generator) -> Sequence[int]:
        history = self._sequences.begin(start)
        found: list[int] = []
        while len(found) <= _MOST * self._model.longest and self._left > 0 < self._unseen:
            options = self._sequences.next(history, random)
            self._unseen -= len(options)
            if not options or (found and options[0] == END):
                break
            drawn = next((one for one in options if one != END and -1 - one < below), END)
            if drawn == END:
                break
            found.append(drawn)
            history.append(drawn)
            self._left -= drawn >= 0
        self._is_cut |= self._left <= 0
        return found


def _turns(rule: Repeat, learned: int, layers: int) -> int:
    """Return how often a repeat comes in a rank with another number of layers."""
    more, rest = divmod((layers - learned) * rule.growth, rule.per_layers)
    if rest:
        raise UsageError(
            Parameter("layers"), f"{rule.per_layers} of the learned layers repeat together",
            f"give {learned} for each rank, and a multiple of {rule.per_layers} more or fewer",
        )  # fmt: skip
    if rule.turns + more < 1:
        fewest = learned - (rule.turns - 1) * rule.per_layers // rule.growth
        raise UsageError(
            Parameter("layers"), f"{learned - fewest} of the learned layers are alike and can go",
            f"give at least {fewest} for each rank",
        )  # fmt: skip
    return rule.turns + more


_COMP, _SEND, _RECV, _COLL = (
    NODE_KINDS.index(name) for name in ("COMP", "COMM_SEND", "COMM_RECV", "COMM_COLL")
)

_LARGEST = 1 << 22  # ranks x layers x steps: some 10^9 operations
_PROGRAMS = 4
"""Different programs of ranks with the same communication."""


class JobWishes(NamedTuple):
    """What a job shall be like; 0 for as learned.

    Attributes
    ----------
    ranks, layers, steps, hidden
        How many ranks, layers of the model and steps it has, and its width.
    seed
        Equal seeds give equal jobs.
    times
        A model of other jobs, such as of another machine: operations take as long as those of the
        same name in a job of it.
    """

    ranks: int = 0
    layers: int = 0
    steps: int = 0
    hidden: int = 0
    seed: int = 0
    times: TraceModel | None = None


class _TokenTable(NamedTuple):
    """Columns of the vocabulary, and what tokens wait for; as of ``RankColumns``."""

    label: Ints
    kind: Ints
    comm_type: Ints
    op_class: Ints
    dtype: Ints
    is_cpu: Ints
    thread: Ints
    stream: Ints
    peer: Ints
    lane: Ints
    first_wait: Ints
    wait_lane: Ints
    wait_between: Ints


class _Maker(NamedTuple):
    """What all ranks of a job are made of."""

    tokens: Sequence[Token]
    table: _TokenTable
    layout: RankLayout
    known: TokenQuantities
    groups: dict[tuple[int, ...], int]


@checked
def synthetic_job(model: TraceModel, wishes: JobWishes | None = None) -> Job:
    """Draw a job from a model.

    One of the learned jobs says which ranks there are and what groups they form. Ranks with the
    same communication get the same program, drawn anew for each step; each has its own durations.
    Communication has all of its members, and no operation waits for itself, so that simulations
    end. O(operations log operations).

    Raises
    ------
    UsageError
        If ranks, layers or width cannot be as wished; the message says why.
    InputError
        If the job is larger than the memory that is free.
    """
    try:
        return job_of_columns(synthetic_columns(model, wishes or JobWishes()))
    except OverflowError:
        raise InputError(
            "model", "sizes of its operations, as wished, are beyond 64 bits",
            "give fewer ranks or layers, a smaller width, or another model",
        ) from None  # fmt: skip


def synthetic_columns(model: TraceModel, wishes: JobWishes) -> JobColumns:
    """Draw a job from a model, as columns; see :func:`synthetic_job`."""
    _check(wishes)
    random = np.random.default_rng(wishes.seed)
    template = _template(model, wishes, random)
    _check_size(wishes, template)
    layout = layout_of(template, wishes.ranks)
    table, labels = _table(model.tokens)
    width = wishes.hidden or template.hidden
    size = JobSize(layout.num_ranks, template.num_ranks, width)
    known = sizes_of_job(quantities_at(model.quantities, len(model.tokens), size), random)
    if wishes.times is not None:
        like = synthetic_columns(wishes.times, JobWishes(seed=wishes.seed))
        known = with_times_of(known, model.tokens, like)
    draws = ProgramDraws(model)
    programs = _programs(draws, template, wishes, random)
    maker = _Maker(model.tokens, table, layout, known, {})
    learned = [layout.learned_rank(rank) for rank in range(layout.num_ranks)]
    steps = [programs[like] for like in learned]
    draws.check_room(sum(one.size for own in steps for one in own))
    tokens = [np.concatenate(own) for own in steps]
    if wishes.hidden:
        check_width(model.quantities, np.concatenate(tokens), wishes.hidden, template.hidden)
    alike = alike_tokens(model.tokens)
    contexts = {
        like: contexts_of_steps([alike[one] for one in programs[like]], template.num_steps)
        for like in set(learned)
    }
    durations = _durations(maker, model.quantities, steps, contexts, random)
    of_rank = np.split(durations, np.cumsum([one.size for one in tokens])[:-1])
    made = made_at(model.templates, template, (width, layout.num_ranks, wishes.layers))
    ranks = []
    for rank in range(layout.num_ranks):
        lives = _lives(template, made, learned[rank], contexts[learned[rank]], wishes)
        made_rank = _rank(maker, rank, tokens[rank], of_rank[rank], lives)
        number = np.repeat(np.arange(len(steps[rank])), [one.size for one in steps[rank]])
        ranks.append(made_rank._replace(step=number))
    groups = tuple(maker.groups)
    lanes = [np.where(one.stream >= 0, 2 * one.stream, 2 * one.thread + 1) for one in ranks]
    lanes = [np.where((one.stream < 0) & (one.thread < 0), -1, lane)
             for one, lane in zip(ranks, lanes, strict=True)]  # fmt: skip
    meetings = without_deadlock(ranks, lanes, matched_meetings(ranks, groups))
    return JobColumns(
        tuple(_agreed(ranks, meetings)), tuple(labels), groups, template.memory.device
    )


def _durations(
    maker: _Maker, quantities: Quantities, steps: Sequence[Sequence[Ints]],
    contexts: Mapping[int, Sequence[Hashes]], random: np.random.Generator,
) -> Ints:  # fmt: skip
    """Draw the durations of all ranks, one after the other, so that who is slow stays slow.

    - ``steps``: Of each rank the tokens of each step.
    - ``contexts``: Of each learned rank, of each step.
    """
    layout, table, known = maker.layout, maker.table, maker.known
    template = layout.template
    learned = np.array([layout.learned_rank(rank) for rank in range(layout.num_ranks)])
    is_copy = np.array([layout.is_copy(rank) for rank in range(layout.num_ranks)])
    like_rank, like_step = drawn_steps(template, learned, is_copy, len(steps[0]), random)
    loads, courses = (
        one[like_rank[:, None], like_step] for one in (template.load, template.course)
    )
    expected = np.concatenate([
        context_scores(quantities, contexts[int(rank)]) for rank in learned
    ])  # fmt: skip
    noise = Noise(expected, template.noise_share, quantities.memory)
    flat = [one for own in steps for one in own]
    token = np.concatenate(flat)
    means = (known.duration * np.diff(EDGES)).sum(axis=1)
    usual = np.where(table.kind == _COMP, np.maximum(means, 0), 0.0)[token]
    role = np.array(template.role)[learned]
    cuts = courses.shape[2]
    places = [parts_between(table.kind[one] != _COMP, cuts) for one in flat]
    parts = step_parts_of(places, loads, courses, usual, role)
    if is_copy.any():
        names = [np.bincount(table.label[np.concatenate(own)], minlength=table.label.size)
                 for own in steps]  # fmt: skip
        meetings = [sum(int((table.kind[one] != _COMP).sum()) for one in own) for own in steps]
        like = np.array([layout.new_rank(rank, 0) for rank in like_rank.tolist()])
        parts = on_more_ranks(parts, nearly_alike(names, meetings), like, is_copy, random)
    return on_course(draw_durations(token, noise, known, random), token, usual, parts)


def _check(wishes: JobWishes) -> None:
    for name in ("ranks", "layers", "steps", "hidden", "seed"):
        value = getattr(wishes, name)
        if value < 0:
            raise UsageError(Parameter(name, value), "it is negative", "give 0 or more")


def _check_size(wishes: JobWishes, template: Template) -> None:
    counts = {
        "ranks": wishes.ranks or template.num_ranks,
        "layers": wishes.layers or max(template.num_layers, 1),
        "steps": wishes.steps or template.num_steps,
    }
    if math.prod(counts.values()) > _LARGEST:
        name = max(counts, key=lambda one: counts[one])
        product = " x ".join(f"{count:,} {what}" for what, count in counts.items())
        raise UsageError(
            Parameter(name, counts[name]), f"{product} are more than {_LARGEST:,}", "give fewer"
        )


def _template(model: TraceModel, wishes: JobWishes, random: np.random.Generator) -> Template:
    """Choose one of the learned jobs: of the nearest width, depth and size, if these are wished."""
    templates = list(model.templates)
    for name, wanted in (
        ("hidden", wishes.hidden), ("num_layers", wishes.layers), ("num_ranks", wishes.ranks),
    ):  # fmt: skip
        if wanted:
            away = [abs(np.log(max(getattr(one, name), 1) / wanted)) for one in templates]
            templates = [one for one, far in zip(templates, away, strict=True) if far == min(away)]
    return templates[int(random.integers(len(templates)))]


def _programs(
    draws: ProgramDraws, template: Template, wishes: JobWishes, random: np.random.Generator
) -> list[list[Ints]]:
    """Draw the steps of each learned rank; of many in a role, a few in turn."""
    found: list[list[Ints]] = [[] for _ in template.role]
    for number, role in enumerate(template.roles):
        layers = role.layers
        if wishes.layers and wishes.layers != template.num_layers:
            if not template.num_layers or not role.layers:
                raise UsageError(
                    Parameter("layers", wishes.layers),
                    "no layers were found in the learned jobs: nothing repeats in them",
                    "leave it out",
                )  # fmt: skip
            if role.beside:
                raise UsageError(
                    Parameter("layers", wishes.layers),
                    f"not all operations of a layer repeat from layer to layer, such as "
                    f"{role.beside}",
                    "leave it out, or learn of a job with so many layers",
                )  # fmt: skip
            layers, rest = divmod(role.layers * wishes.layers, template.num_layers)
            if rest:
                at_once = template.num_layers // np.gcd(role.layers, template.num_layers)
                raise UsageError(
                    Parameter("layers", wishes.layers),
                    f"they are shared out on ranks, {at_once} at a time",
                    f"give a multiple of {at_once}",
                )
        own = [rank for rank, one in enumerate(template.role) if one == number]
        drawn = [
            draws.steps(role, wishes.steps or template.num_steps, layers, random)
            for _ in own[:_PROGRAMS]
        ]  # fmt: skip
        for place, rank in enumerate(own):
            found[rank] = drawn[place % _PROGRAMS]
    return found


def _table(tokens: Sequence[Token]) -> tuple[_TokenTable, list[str]]:
    labels = {one.label: number for number, one in reversed(list(enumerate(tokens)))}
    place = {label: number for number, label in enumerate(labels)}
    columns = {
        name: np.array([int(getattr(one, name)) for one in tokens], dtype=np.int64)
        for name in ("kind", "comm_type", "op_class", "dtype", "is_cpu", "thread", "stream", "peer",
                     "lane")
    }  # fmt: skip
    waits = [wait for one in tokens for wait in one.waits]
    flat = np.array(waits, dtype=np.int64).reshape(-1, 2)
    first = np.cumsum([0, *(len(one.waits) for one in tokens)], dtype=np.int64)
    label = np.array([place[one.label] for one in tokens], dtype=np.int64)
    return _TokenTable(
        label=label, **columns, first_wait=first, wait_lane=flat[:, 0], wait_between=flat[:, 1]
    ), list(place)


def _rank(
    maker: _Maker, rank: int, token: Ints, duration: Ints, lives: StorageLives
) -> RankColumns:
    table, known = maker.table, maker.known
    group, kind = _groups(maker, rank, token)
    peer = _peers(maker, rank, token)
    alone = ((kind == _SEND) | (kind == _RECV)) & (peer < 0)
    kind = np.where(alone, _COMP, kind)
    src, dst = _waits(table, token)
    minus = np.full(token.size, -1, dtype=np.int64)
    return RankColumns(
        label=table.label[token],
        kind=kind,
        comm_type=table.comm_type[token],
        is_cpu=table.is_cpu[token].astype(np.bool_),
        thread=table.thread[token],
        stream=table.stream[token],
        duration=duration,
        flops=known.flops[token],
        bytes=known.bytes[token],
        comm_bytes=known.comm_bytes[token],
        group=group,
        peer=peer,
        tag=minus,
        op_class=table.op_class[token],
        dtype=table.dtype[token],
        shape=known.shape[token],
        step=minus,
        layer=minus,
        src=src,
        dst=dst,
        lives=lives,
    )


def _lives(
    template: Template, made: Sequence[Mapping[int, tuple[Made, ...]]], learned: int,
    contexts: Sequence[Hashes], wishes: JobWishes,
) -> StorageLives:  # fmt: skip
    """Return the storages of a rank that is like a learned one."""
    if not template.memory.device:
        return StorageLives.none()
    deeper = wishes.layers / template.num_layers if wishes.layers else 1.0
    layer = sum(one.size for one in contexts) / len(contexts) / max(template.num_layers * deeper, 1)
    role, lasting = template.role[learned], template.memory.lasting
    like = lasting[template.role.index(role)]
    share = lasting[learned] / like if like else 1.0
    return draw_lives(made[role], contexts, Growth(share, deeper, layer))


def _groups(maker: _Maker, rank: int, token: Ints) -> tuple[Ints, Ints]:
    """Return the group of each collective, and kinds in which those of one member are work."""
    own = maker.layout.groups_of(rank)
    everybody = maker.layout.num_ranks
    table = maker.table
    of_token = np.full(len(maker.tokens), -1, dtype=np.int64)
    kind = table.kind.copy()
    for number in np.unique(token[table.kind[token] == _COLL]).tolist():
        one = maker.tokens[number]
        members = own.get((one.group, one.nth_group), ())
        learned = len(one.group) or maker.layout.template.num_ranks
        if len(members) < min(learned, 2):
            kind[number] = _COMP
        elif len(members) < everybody:
            of_token[number] = maker.groups.setdefault(members, len(maker.groups))
    return of_token[token], kind[token]


def _peers(maker: _Maker, rank: int, token: Ints) -> Ints:
    """Return the other rank of each message; -1 for none."""
    layout, table = maker.layout, maker.table
    learned = layout.learned_rank(rank)
    of_token = np.full(len(maker.tokens), -1, dtype=np.int64)
    is_message = (table.kind == _SEND) | (table.kind == _RECV)
    for number in np.unique(token[is_message[token]]).tolist():
        other = learned + int(table.peer[number])
        if 0 <= other < layout.template.num_ranks:
            of_token[number] = layout.new_rank(other, rank)
    return of_token[token]


def _waits(table: _TokenTable, token: Ints) -> tuple[Ints, Ints]:
    """Return what each operation waits for: so many before it on a thread or stream."""
    entry, begin = joined_ranges(table.first_wait, token)
    dst = np.repeat(np.arange(token.size), np.diff(begin))
    src = np.full(dst.size, -1, dtype=np.int64)
    lane = table.lane[token]
    of = table.wait_lane[entry]
    for one in np.unique(of).tolist():
        rows = np.flatnonzero(lane == one)
        mine = np.flatnonzero(of == one)
        place = np.searchsorted(rows, dst[mine]) - 1 - table.wait_between[entry[mine]]
        there = place >= 0
        src[mine[there]] = rows[place[there]]
    known = src >= 0
    pairs = np.unique(dst[known] * token.size + src[known])
    return pairs % token.size, pairs // token.size


def _agreed(ranks: Sequence[RankColumns], meetings: Sequence[Meeting]) -> list[RankColumns]:
    """Let all who meet do the same, and let what has no counterpart be work that takes no time."""
    found = [
        one._replace(
            kind=np.full(one.size, _COMP, dtype=np.int64), comm_type=np.zeros_like(one.comm_type),
            comm_bytes=np.full(one.size, -1, dtype=np.int64), peer=np.full(one.size, -1),
            group=np.full(one.size, -1, dtype=np.int64), tag=np.full(one.size, -1),
            duration=np.where((one.kind != _COMP) & (one.duration > 0), 0, one.duration),
        )
        for one in ranks
    ]  # fmt: skip
    for meeting in meetings:
        lead, first = meeting.rows[0]
        is_message = ranks[lead].kind[first] == _SEND
        for rank, row in meeting.rows:
            own, new = ranks[rank], found[rank]
            like = own if is_message else ranks[lead]
            at = row if is_message else first
            new.kind[row], new.comm_type[row] = like.kind[at], like.comm_type[at]
            new.comm_bytes[row] = ranks[lead].comm_bytes[first]
            new.peer[row], new.group[row] = own.peer[row], own.group[row]
            new.duration[row] = own.duration[row]
            if is_message:
                new.tag[row] = meeting.number
    return found
