"""A job made in code: its ranks and groups, checked while it is written."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from types import TracebackType

from nadi.models.communication_checks import check_communication
from nadi.models.given_values import checked_name, whole
from nadi.models.rank_builder import RankBuilder
from nadi.models.rank_program import Group, Place, RankProgram, trace_of
from nadi.models.user_lines import refusal, user_line
from nadi.trace.schema import ISSUES, MATCHES
from nadi.trace.trace import Job, Trace

_LARGEST_WORLD = 2**24
_OF_ALL_RANKS = ("", "0")  # names of the group of all ranks in a Chakra trace


class JobBuilder:
    """Make a job in code, for the simulator and for Chakra traces.

    Nodes are added in a ``with`` block, to the ranks in :attr:`ranks`, or once for several ranks
    that do the same. Values are checked by each call; sends, receives and collectives are
    matched at the end of the block. An error states the line of the program that made the node.

    Parameters
    ----------
    world_size
        Number of ranks.

    Raises
    ------
    UsageError
        If there is no rank. At the end of the block: if a rank has no node, a send no receive, a
        member of a group does not take part in a collective, or ranks wait for each other in a
        circle.

    Examples
    --------
    >>> with nadi.JobBuilder(world_size=8) as job:
    ...     for rank in job.ranks:
    ...         gradients = rank.compute("backward", duration="2 ms")
    ...         rank.stream(1).collective("all_reduce", "64 MiB", after=gradients)
    >>> nadi.simulate(job.job, system)
    """

    def __init__(self, world_size: int) -> None:
        self.world_size = whole(world_size, "world_size", _LARGEST_WORLD, least=1)
        self._line = user_line()
        self._groups: dict[str, Group] = {}
        self._programs: list[RankProgram] = []
        self._program_of: dict[int, RankProgram] = {}  # of each rank that has nodes
        self._job: Job | None = None
        self._is_finished = False

    def __repr__(self) -> str:
        return f"<JobBuilder ranks={self.world_size}>"

    @cached_property
    def ranks(self) -> tuple[RankBuilder, ...]:
        """The ranks, in order; for a program for each."""
        return tuple(self._builder((rank,)) for rank in range(self.world_size))

    @cached_property
    def all_ranks(self) -> RankBuilder:
        """All ranks at once: each does what is added to it. They share one Trace."""
        return self._builder(tuple(range(self.world_size)))

    def together(self, ranks: Iterable[int]) -> RankBuilder:
        """Return several ranks at once: each does what is added. They share one Trace.

        Raises
        ------
        UsageError
            If a rank is not of the job, or occurs twice.
        """
        return self._builder(self._checked_ranks(ranks, "ranks"))

    def group(self, name: str, ranks: Iterable[int]) -> Group:
        """Make a process group, for ``group=`` of collectives.

        Parameters
        ----------
        name
            Its name. ASTRA-sim needs a number.
        ranks
            Its members, in any order.

        Raises
        ------
        UsageError
            If the name is taken, or a member is not a rank of the job, or occurs twice.
        """
        if checked_name(name, "name") in _OF_ALL_RANKS:
            raise refusal(f"the name {name!r} means all ranks", "choose another name")
        if name in self._groups:
            raise refusal(f"there is a group {name!r} already", "choose another name")
        self._groups[name] = Group(name, self._checked_ranks(ranks, "ranks"))
        return self._groups[name]

    @property
    def job(self) -> Job:
        """The finished job; ranks that do the same share one Trace, whose rank is -1.

        Its ``matches`` are empty, as of jobs that are read from Chakra traces: the simulator
        matches communication itself.

        Raises
        ------
        UsageError
            Before the end of the ``with`` block.
        """
        if self._job is None:
            raise refusal(
                "the job is not finished", "read it after the with block, if that raised no error"
            )
        return self._job

    def __enter__(self) -> JobBuilder:
        if self._is_finished:
            raise refusal("the job is finished", "make another JobBuilder")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        self._is_finished = True
        for program in self._programs:
            program.is_finished = True
        if kind is None:
            self._finish()

    def _finish(self) -> None:
        """Check the whole job, and make its traces."""
        for rank in range(self.world_size):
            if rank not in self._program_of or not self._program_of[rank].operations:
                remedy = "give it one, or make world_size smaller"
                raise refusal(f"rank {rank} has no node", remedy, self._line)
        used = list(dict.fromkeys(self._program_of.values()))
        taken = sorted(set().union(*(program.tags for program in used)))
        for program in used:
            program.give_tags(taken)
        check_communication(used, self._groups, self.world_size)
        of_program: dict[RankProgram, Trace] = {}
        alike: dict[object, list[RankProgram]] = {}
        for program in used:
            alike.setdefault(program.content(), []).append(program)
        for programs in alike.values():
            ranks = [rank for program in programs for rank in program.ranks]
            own = ranks[0] if len(ranks) == 1 else -1
            trace = trace_of(programs[0], self._groups, own, self.world_size)
            of_program |= dict.fromkeys(programs, trace)
        traces = tuple(of_program[self._program_of[r]] for r in range(self.world_size))
        self._job = Job(traces, MATCHES.empty(), ISSUES.empty())

    def _builder(self, ranks: tuple[int, ...]) -> RankBuilder:
        program = RankProgram(ranks)
        program.is_finished = self._is_finished
        self._programs.append(program)
        return RankBuilder(program, Place(stream=0), self._groups, self.world_size, self._claim)

    def _claim(self, program: RankProgram) -> None:
        """Make ranks those of a program, before it gets its first node."""
        if program.operations:
            return
        for rank in program.ranks:
            other = self._program_of.get(rank, program)
            if other.operations:  # and not a first node that was refused
                raise refusal(
                    f"rank {rank} has another program, which begins at {other.lines[0]}",
                    "write the nodes of a rank either by itself or together with others",
                )
        self._program_of |= dict.fromkeys(program.ranks, program)

    def _checked_ranks(self, ranks: Iterable[int], what: str) -> tuple[int, ...]:
        if isinstance(ranks, (str, bytes)) or not isinstance(ranks, Iterable):
            raise refusal(f"{what} is {ranks!r}; it must be numbers", f"write {what}=[0, 1]")
        found = tuple(sorted(whole(rank, "a rank") for rank in ranks))
        if not found:
            raise refusal(f"{what} is empty", "name at least one rank")
        if found[-1] >= self.world_size:
            raise refusal(
                f"there is no rank {found[-1]}: the job has {self.world_size}, counted from 0",
                "name other ranks, or make world_size larger",
            )
        if len(set(found)) < len(found):
            raise refusal(f"{what} has a rank twice", "name each once")
        return found
