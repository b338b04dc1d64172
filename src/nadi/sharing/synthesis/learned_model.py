"""A model of jobs: what was learned of them, as values and arrays."""

from dataclasses import dataclass
from typing import NamedTuple

from nadi.sharing.synthesis.back_off import Counts
from nadi.sharing.synthesis.grammar import Repeat
from nadi.sharing.synthesis.storage_lives import LearnedStorages
from nadi.sharing.synthesis.tokens import Token
from nadi.trace.arrays import Floats, Hashes, Ints

END = 1 << 40
"""The symbol after the last of a step or a body."""
FIRST_START = END + 1
"""The symbol before the first: this number for the first rule, then the other rules, then steps."""


class Quantities(NamedTuple):
    """Sizes and durations by token, and by size and width of the jobs in which they were seen."""

    # token, ranks, hidden: int64, shape (entries,), ascending: the number of ranks; the width is
    # the commonest last size of tensors, 0 if no tensors are stated
    token: Ints
    ranks: Ints
    hidden: Ints
    # flops, bytes, comm_bytes: int64, shape (entries, variants): sizes that occur, ascending
    # together; mostly all equal. -1 if they are not stated
    flops: Ints
    bytes: Ints
    comm_bytes: Ints
    shape: Ints  # int64, shape (entries, variants, 4): of a product or an attention
    # float64 ns, shape (entries, quantiles): means of durations, the shortest first; -1 if none are
    # stated
    duration: Floats
    # context, effect: uint64 and float64, shape (contexts,): hashes of operations and those before
    # them, ascending, and the normal score that each adds
    context: Hashes
    effect: Floats
    # correlation of the rank of a duration among those of its token with that of the operation
    # before it, what contexts and steps explain taken off
    memory: float


class Role(NamedTuple):
    """Ranks of a job with the same communication."""

    layers: int  # layers of each of these ranks; 0 if none were found
    # first_step, later_step: the symbols before the first step, and before others
    first_step: int
    later_step: int
    beside: str  # operations of layers that would not be more with more layers; empty for none


class Template(NamedTuple):
    """A job that was learned, without its operations.

    Attributes
    ----------
    num_steps, num_layers, hidden
        Of the job; 0 for unknown.
    has_stated_layers
        Whether operations or modules say which layers they are; else the longest repeat is taken.
    role
        For each rank, its position in ``roles``.
    roles
        What differs between ranks.
    groups
        For each rank, its process groups in the order of their first use.
    load
        float64, shape (ranks, steps): the sum of durations of each step, over what the tokens of
        its role take on average: ranks of a role may have unlike programs, and a new one may have
        that of another.
    course
        float64, shape (ranks, steps, parts): as ``load``, of each part; parts end where ranks meet.
    memory
        Its storages.
    noise_share
        How much of the variance of the scores contexts leave.
    """

    num_steps: int
    num_layers: int
    has_stated_layers: bool
    hidden: int
    role: tuple[int, ...]
    roles: tuple[Role, ...]
    groups: tuple[tuple[tuple[int, ...], ...], ...]
    load: Floats
    course: Floats
    memory: LearnedStorages
    noise_share: float

    @property
    def num_ranks(self) -> int:
        """Number of ranks of the job."""
        return len(self.role)


@dataclass(frozen=True, eq=False)
class TraceModel:
    """A generative model of jobs.

    Attributes
    ----------
    tokens
        Every operation that occurs, without sizes and times.
    rules
        Repeats; their bodies are learned as sequences, too.
    counts
        What comes after what, for each length of context.
    longest
        The most symbols that a sequence has.
    largest
        The most operations that a step has.
    quantities
        Sizes and durations.
    templates
        The jobs that were learned: their ranks, process groups and steps.
    """

    tokens: tuple[Token, ...]
    rules: tuple[Repeat, ...]
    counts: tuple[Counts, ...]
    longest: int
    largest: int
    quantities: Quantities
    templates: tuple[Template, ...]

    def __repr__(self) -> str:
        return f"<TraceModel jobs={len(self.templates)} tokens={len(self.tokens)}>"
