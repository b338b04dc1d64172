"""Learn a model from jobs: their operations as tokens, the sequences of these, and quantities."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nadi.errors import InputError, UsageError
from nadi.sharing.synthesis.back_off import count_contexts
from nadi.sharing.synthesis.grammar import Grammar, backward_labels, num_layers, step_parts
from nadi.sharing.synthesis.job_columns import JobColumns, columns_of_job
from nadi.sharing.synthesis.learned_model import END, FIRST_START, Role, Template, TraceModel
from nadi.sharing.synthesis.quantities import QuantityLog, contexts_of_steps
from nadi.sharing.synthesis.storage_lives import learn_memory
from nadi.sharing.synthesis.tokens import RankTokens, Token, Vocabulary, alike_tokens
from nadi.systems.library import recorded_devices
from nadi.trace.arrays import Ints
from nadi.trace.schema import NODE_KINDS
from nadi.trace.trace import Job, Trace

_COMP = NODE_KINDS.index("COMP")


class _Start(NamedTuple):
    """What a step is of: a job, a role of it, and whether it is its first step."""

    job: int
    role: int
    is_first: bool


class _Learner:
    """What is collected from one job after the other."""

    def __init__(self) -> None:
        self.vocabulary = Vocabulary()
        self.grammar = Grammar()
        self.steps: Counter[tuple[_Start, tuple[int, ...]]] = Counter()
        self.quantities = QuantityLog()
        self.templates: list[Template] = []
        self.starts: dict[_Start, int] = {}

    def add(self, columns: JobColumns, hidden: int) -> None:
        """Learn a job."""
        job = len(self.templates)
        ranks = self.vocabulary.encode(columns)
        tokens = self.vocabulary.tokens
        role = _roles(ranks, tokens)
        layers = [num_layers(one.columns, one.token) for one in ranks]
        backward = backward_labels(columns.labels)
        roles = []
        for number in range(max(role) + 1):
            own = [rank for rank, one in enumerate(role) if one == number]
            starts = [_Start(job, number, is_first) for is_first in (True, False)]
            beside = [self._steps(ranks[rank], starts, layers[own[0]], backward) for rank in own]
            numbers = [self.starts.setdefault(one, len(self.starts)) for one in starts]
            label = max(beside)
            name = columns.labels[label] if label >= 0 else ""
            roles.append(Role(layers[own[0]], numbers[0], numbers[1], name))
        self.quantities.add(ranks, hidden)
        alike = alike_tokens(tokens)
        slow = self.quantities.noise(ranks, alike, role)
        stated = [np.unique(one.columns.layer[one.columns.layer >= 0]) for one in ranks]
        of_job = np.unique(np.concatenate(stated)).size
        contexts = []
        for one in ranks:
            steps = [alike[one.token[rows]] for rows in step_parts(one.columns)]
            contexts.append(contexts_of_steps(steps, len(steps)))
        memory = learn_memory([one.columns.lives for one in ranks], contexts, role, columns.device)
        groups = tuple(_groups(one, columns) for one in ranks)
        self.templates.append(
            Template(
                slow.load.shape[1],
                of_job or max(layers),
                of_job > 0,
                hidden,
                tuple(role),
                tuple(roles),
                groups,
                slow.load,
                slow.course,
                memory,
                slow.noise_share,
            )
        )

    def _steps(
        self, rank: RankTokens, starts: Sequence[_Start], layers: int, backward: Mapping[int, int]
    ) -> int:
        """Count the steps of a rank; returns a label as of ``ParsedStep.beside``."""
        beside = -1
        for number, rows in enumerate(step_parts(rank.columns)):
            of_rank = rank.token, rank.columns.label, rank.columns.layer
            token, label, layer = (one[rows] for one in of_rank)
            step = self.grammar.parse(token, label, layer, layers, backward)
            beside = max(beside, step.beside)
            self.steps[starts[number > 0], step.symbols] += 1
            if number == 0:  # if a job of one step gets more
                self.steps[starts[1], step.symbols] += 0
        return beside

    def model(self) -> TraceModel:
        """Return what was learned of all jobs."""
        sequences = self._sequences()
        first_step = FIRST_START + len(self.grammar.rules)
        tokens = tuple(self.vocabulary.tokens)
        return TraceModel(
            tokens, tuple(self.grammar.rules), count_contexts(sequences),
            max(len(symbols) for symbols, _ in sequences),
            max(self.grammar.size_of(symbols) for _, symbols in self.steps),
            self.quantities.table(),
            tuple(
                one._replace(roles=tuple(_numbered(role, first_step) for role in one.roles))
                for one in self.templates
            ),
        )  # fmt: skip

    def _sequences(self) -> list[tuple[tuple[int, ...], int]]:
        """Return each different step and body of a rule, and how often it came."""
        rules = self.grammar.rules
        first_step = FIRST_START + len(rules)
        sequences: list[tuple[tuple[int, ...], int]] = []
        often: Counter[int] = Counter()
        several = {start for (start, _), times in self.steps.items() if times}
        for (start, symbols), times in self.steps.items():
            if times or start not in several:
                weight = max(times, 1)
                sequences.append(((first_step + self.starts[start], *symbols, END), weight))
                for one in symbols:
                    often[one] += weight * (one < 0)
        for number in range(len(rules) - 1, -1, -1):  # rules stand after those in their bodies
            rule = rules[number]
            weight = often[-1 - number] * rule.turns
            for one in rule.body:
                often[one] += weight * (one < 0)
            if weight:
                sequences.append(((FIRST_START + number, *rule.body, END), weight))
        return sequences


def learn_model(jobs: Iterable[Job | Sequence[Trace]]) -> TraceModel:
    """Learn a model of jobs, recorded or generated. O(operations log operations).

    The model has no process ids, paths, hosts, users or free text. Operations have names that
    everybody has, with numbers replaced by ``#``, such as those of PyTorch and of its kernels;
    others are known by a word for their class. Sizes and times are as they were.

    - Raises InputError if there is no job, or one has no operations.
    - Raises UsageError if recordings are of different devices.
    - Raises NadiError if a recording cannot be converted to what simulators take.
    """
    learner = _Learner()
    devices: set[str] = set()
    for job in jobs:
        traces = job.traces if isinstance(job, Job) else job
        _note_device(devices, traces)
        learner.add(columns_of_job(job), width_of(traces[0]) if traces else 0)
    if not learner.templates:
        raise InputError("jobs", "there are none to learn from", "give at least one job")
    return learner.model()


def _note_device(devices: set[str], traces: Sequence[Trace]) -> None:
    """Refuse recordings of different devices, of which the times would be mixed."""
    devices |= {name for name in (recorded_devices(traces),) if name}
    if len(devices) > 1:
        raise UsageError(
            f"jobs on {' and on '.join(sorted(devices))}", "times of different devices would be "
            "mixed in one model",
            "learn a model of each; a job can be made of one with the times of another",
        )  # fmt: skip


def template_of(job: Job | Sequence[Trace]) -> Template:
    """Return what a model of one job alone has of it, besides its operations.

    - Raises NadiError as of :func:`learn_model`.
    """
    learner = _Learner()
    traces = job.traces if isinstance(job, Job) else job
    learner.add(columns_of_job(job), width_of(traces[0]))
    return learner.templates[0]


def width_of(trace: Trace) -> int:
    """Return the commonest last size of the tensors of a rank, its hidden size; 0 without any."""
    operands, tensors = trace.operands, trace.tensors
    if not operands.height:
        return 0
    used = operands["tensor"].to_numpy()
    shapes = tensors["shape"]
    last, rank = shapes.list.last(), shapes.list.len()
    wide = ((rank >= 2) & (last > 1)).fill_null(value=False).to_numpy()
    used = used[used >= 0]
    used = used[wide[used]]
    sizes = last.fill_null(0).to_numpy()[used]
    return int(np.bincount(sizes).argmax()) if sizes.size else 0


def _numbered(role: Role, first: int) -> Role:
    return role._replace(first_step=first + role.first_step, later_step=first + role.later_step)


def _roles(ranks: Sequence[RankTokens], tokens: Sequence[Token]) -> list[int]:
    """Return a number for each rank: equal ones communicate the same."""
    talks = np.array([one.kind != _COMP for one in tokens], dtype=np.bool_)
    plain: dict[Token, int] = {}
    same = np.array(
        [plain.setdefault(one._replace(waits=()), len(plain)) for one in tokens], dtype=np.int64
    )
    known: dict[bytes, int] = {}
    found = []
    for rank in ranks:
        key = same[rank.token[talks[rank.token]]].tobytes()
        found.append(known.setdefault(key, len(known)))
    return found


def _groups(rank: RankTokens, columns: JobColumns) -> tuple[tuple[int, ...], ...]:
    """Return the process groups of a rank in the order of their first use; empty for all."""
    used: Ints = rank.columns.group[rank.columns.group >= 0]
    return tuple(columns.groups[one] for one in dict.fromkeys(used.tolist()))
