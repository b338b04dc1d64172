"""A machine of several ranks that plays programs by the true rules of what waits for what.

A program is a list of statements for each thread of each rank. Playing it gives the moments
at which its operations start and end; each moment is the latest of others, each some
nanoseconds later. So what a play waited for is known, and not guessed from its times.

The rules are those of CUDA as PyTorch uses it:

- a thread does its statements one after the other;
- device work starts when its call has ended, some latency later, after the work before it on
  its stream, and after the events that the stream was told to wait for;
- a call that waits ends when that has ended, and no sooner than it would by itself;
- a launch waits until there is room on its stream;
- a large copy from pageable memory holds its call up until its data is taken along;
- a collective ends on every rank some time after the last rank has started it, and so does
  what one rank sends to another.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = [
    "Do", "Key", "Machine", "Moment", "Operation", "Play", "Program", "Rank", "Thread", "play",
    "scaled",
]  # fmt: skip

Key = tuple[int, int, int, int]  # rank, thread, statement, 0 for its host part, k for its k-th work
Moment = tuple[object, ...]  # (*Key, "start" or "end"), or another name that stands once
_STAGED_BYTES = 2**20
Sources = list[tuple[Moment, int]]  # moments and the ns by which another comes later


@dataclass(frozen=True)
class Do:
    """One statement of a thread.

    Attributes
    ----------
    what
        A method of :class:`_Player`.
    time
        Host time in ns that the statement takes by itself.
    work
        Device time in ns of each piece of work that it launches.
    number
        Of an event, a hand-over, a process group, or the rank that is sent to or received from.
    """

    what: str
    time: int = 0
    name: str = ""
    stream: int = 7
    work: tuple[int, ...] = ()
    number: int = 0


@dataclass(frozen=True)
class Thread:
    """A thread: its id, when it begins in ns, and what it does."""

    number: int
    begin: int
    todo: tuple[Do, ...]


@dataclass(frozen=True)
class Rank:
    """The threads of a rank."""

    threads: tuple[Thread, ...]


@dataclass(frozen=True)
class Program:
    """What each rank does; the members of each process group, by its number."""

    ranks: tuple[Rank, ...]
    groups: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Machine:
    """The overheads of a machine in ns.

    Attributes
    ----------
    latency
        From the end of a call to the start of the work that it launched.
    copy_latency
        From the start of a copy that blocks its call to the start of the copy.
    turnaround
        From the end of work to the start of the next on its stream.
    crossing
        From the end of work to the start of other work that waits for it by an event.
    wake_up
        From the end of what a call waits for to the end of the call.
    own
        Of a call that waits, if there is nothing to wait for.
    hand_over
        From one thread's word to the start of another's work, and back.
    staging
        From the start of a large copy from pageable memory to the end of its call.
    queue_length
        Launches that a stream holds before the next one blocks.
    """

    latency: int = 3_000
    copy_latency: int = 12_000
    turnaround: int = 1_000
    crossing: int = 0
    wake_up: int = 0
    own: int = 0
    hand_over: int = 100_000
    staging: int = 15_000
    queue_length: int = 1_022


@dataclass(frozen=True)
class Operation:
    """Something that a recording shows: on a thread, or on a stream of the device.

    Attributes
    ----------
    group, source, target
        Of communication: its group, and which rank sends to which if it is of two.
    size
        Bytes, of a copy that says so.
    launcher
        Of device work the operation that launched it.
    waits_for_record
        Key of the call that recorded the event that this call waits for, if it is one.
    """

    key: Key
    category: str
    name: str
    stream: int = -1
    group: int = -1
    source: int = -1
    target: int = -1
    size: int = 0
    launcher: Key | None = None
    waits_for_record: Key | None = None

    @property
    def start(self) -> Moment:
        """The moment at which it starts."""
        return (*self.key, "start")

    @property
    def end(self) -> Moment:
        """The moment at which it ends."""
        return (*self.key, "end")


@dataclass(frozen=True)
class Play:
    """A program that was played.

    Attributes
    ----------
    operations
        In order of their statements.
    sources
        What each moment waited for; acyclic.
    times
        When each moment was, in ns.
    has_ties
        Two threads of a rank spoke to its device at the same time, so that their order is
        not to be seen.
    """

    operations: tuple[Operation, ...]
    sources: Mapping[Moment, Sources]
    times: Mapping[Moment, int]
    has_ties: bool

    def order(self) -> Mapping[Moment, set[Moment]]:
        """Tell which moments each waited for, whenever they were."""
        return {moment: {source for source, _ in found} for moment, found in self.sources.items()}


def play(program: Program, machine: Machine) -> Play:
    """Play a program.

    Raises
    ------
    RuntimeError
        If threads wait for each other.
    """
    return _Player(program, machine).play()


def scaled(program: Program, factors: Mapping[Key, float]) -> Program:
    """Multiply the own time of operations, which must give whole ns.

    Host work belongs to the innermost operation that is open on its thread.
    """
    ranks = []
    for r, rank in enumerate(program.ranks):
        threads = []
        for thread in rank.threads:
            open_operations: list[Key] = []
            todo = []
            for index, do in enumerate(thread.todo):
                key = (r, thread.number, index, 0)
                owner = key
                if do.what in ("open", "annotate"):
                    open_operations.append(key)
                elif do.what == "close":
                    open_operations.pop()
                elif do.what == "spend":
                    owner = open_operations[-1] if open_operations else (-1, -1, -1, -1)
                work = [ns * factors.get((*key[:3], k + 1), 1) for k, ns in enumerate(do.work)]
                todo.append(_with_times(do, do.time * factors.get(owner, 1), work))
            threads.append(Thread(thread.number, thread.begin, tuple(todo)))
        ranks.append(Rank(tuple(threads)))
    return Program(tuple(ranks), program.groups)


def _with_times(do: Do, time: float, work: Sequence[float]) -> Do:
    if any(ns != int(ns) for ns in (time, *work)):
        raise ValueError(f"{do} would not last whole ns")
    return Do(do.what, int(time), do.name, do.stream, tuple(map(int, work)), do.number)


class _Player:
    """Plays statements in the order of their times; a thread that waits is passed over."""

    def __init__(self, program: Program, machine: Machine) -> None:
        self.program = program
        self.machine = machine
        self.operations: list[Operation] = []
        self.sources: dict[Moment, Sources] = {}
        self.times: dict[Moment, int] = {}
        self.now: dict[tuple[int, int], Moment] = {}
        self.stacks: dict[tuple[int, int], list[Operation]] = defaultdict(list)
        # what the next work of a stream waits for, and what an event stands for
        self.streams: dict[tuple[int, int], Sources] = defaultdict(list)
        self.events: dict[tuple[int, int], Sources] = defaultdict(list)
        self.recorded_by: dict[tuple[int, int], Key] = {}
        self.num_met: Counter[tuple[int, object]] = Counter()
        self.launched: dict[tuple[int, int], list[Moment]] = defaultdict(list)
        self.spoken: set[tuple[int, int]] = set()
        self.has_ties = False

    def play(self) -> Play:
        left = {}
        for r, rank in enumerate(self.program.ranks):
            for thread in rank.threads:
                self.now[r, thread.number] = begin = ("begin", r, thread.number)
                self.times[begin] = thread.begin
                left[r, thread.number] = list(enumerate(thread.todo))
        while any(left.values()):
            ready = [
                (time, *thread)
                for thread, todo in left.items()
                if todo and (time := self.time(self.now[thread])) is not None
            ]
            if not ready:
                raise RuntimeError("the threads of this program wait for each other")
            _, *thread = min(ready)
            index, do = left[thread[0], thread[1]].pop(0)
            getattr(self, do.what)((*thread, index, 0), do)
        times = {moment: self.time(moment) for moment in self.sources}
        if None in times.values():
            raise RuntimeError("a collective of this program never ends")
        self.operations.sort(key=lambda operation: operation.key)
        return Play(tuple(self.operations), self.sources, self.times, self.has_ties)

    def time(self, moment: Moment) -> int | None:
        """Give the time of a moment, or None while it is not known."""
        if moment not in self.times:
            sources = self.sources.get(moment)
            if sources is None or (moment[0] == "entered" and not self.is_complete(moment)):
                return None
            times = [self.time(source) for source, _ in sources]
            if None in times:
                return None
            self.times[moment] = max(t + ns for t, (_, ns) in zip(times, sources, strict=True))
        return self.times[moment]

    def is_complete(self, moment: Moment) -> bool:
        _, members, _ = moment
        num_ranks = len(self.program.groups[members]) if isinstance(members, int) else 2
        return len(self.sources[moment]) == num_ranks

    def moment(self, moment: Moment, sources: Sources) -> Moment:
        self.sources[moment] = list(sources)
        self.time(moment)
        return moment

    def speaks(self, key: Key) -> None:
        """Note that a thread speaks to the device of its rank."""
        time = self.times[self.now[key[:2]]]
        self.has_ties |= (key[0], time) in self.spoken
        self.spoken.add((key[0], time))

    # statements of the host

    def spend(self, key: Key, do: Do) -> None:
        """Work by itself."""
        self.now[key[:2]] = self.moment((*key, "spent"), [(self.now[key[:2]], do.time)])

    def open(self, key: Key, do: Do, category: str = "cpu_op") -> None:
        """Begin an operator."""
        operation = Operation(key, category, do.name)
        self.stacks[key[:2]].append(operation)
        self.operations.append(operation)
        self.now[key[:2]] = self.moment(operation.start, [(self.now[key[:2]], 0)])

    def annotate(self, key: Key, do: Do) -> None:
        """Begin an annotation."""
        self.open(key, do, "user_annotation")

    def close(self, key: Key, do: Do) -> None:
        """End the operator or annotation begun last."""
        end = self.stacks[key[:2]].pop().end
        self.now[key[:2]] = self.moment(end, [(self.now[key[:2]], 0)])

    def call(
        self, key: Key, do: Do, name: str, waits_for: Sources = (), *,
        own: int = -1, record: Key | None = None,
    ) -> Operation:  # fmt: skip
        """Call the runtime, which returns after what it waits for."""
        self.speaks(key)
        call = Operation(key, "cuda_runtime", do.name or name, do.stream, waits_for_record=record)
        self.operations.append(call)
        start = self.moment(call.start, [(self.now[key[:2]], 0)])
        own = do.time if own < 0 else own
        if do.work:
            waits_for = [*waits_for, *self.room(key, do)]
        self.now[key[:2]] = self.moment(call.end, [(start, own), *waits_for])
        return call

    def room(self, key: Key, do: Do) -> Sources:
        """Give what must have ended for there to be room for a launch on its stream."""
        launched = self.launched[key[0], do.stream]
        most = self.machine.queue_length
        full = [(launched[-most], self.machine.wake_up)] if len(launched) >= most else []
        launched.append((*key[:3], len(do.work), "end"))
        return full

    # statements of the device

    def launch(self, key: Key, do: Do) -> None:
        """Launch a kernel."""
        self.queue(self.call(key, do, "cudaLaunchKernel"), do, "kernel", "gemm")

    def launch_graph(self, key: Key, do: Do) -> None:
        """Launch a graph of kernels, one after the other, by one call."""
        self.queue(self.call(key, do, "cudaGraphLaunch"), do, "kernel", "gemm")

    def memset(self, key: Key, do: Do) -> None:
        """Set memory, on the stream."""
        self.queue(self.call(key, do, "cudaMemsetAsync"), do, "gpu_memset", "Memset (Device)")

    def copy(self, key: Key, do: Do) -> None:
        """Copy from pinned memory: the call does not wait."""
        name = "Memcpy HtoD (Pinned -> Device)"
        self.queue(self.call(key, do, "cudaMemcpyAsync"), do, "gpu_memcpy", name)

    def queue(self, call: Operation, do: Do, category: str, name: str) -> None:
        """Put work on its stream that starts after its call."""
        asked = (call.end, self.machine.latency)
        for number, duration in enumerate(do.work, 1):
            work, start = self.work(call, do, category, name, number, asked)
            self.finish(work, [(start, duration)])

    def work(
        self, call: Operation, do: Do, category: str, name: str, number: int,
        asked: tuple[Moment, int], **said: int,
    ) -> tuple[Operation, Moment]:  # fmt: skip
        """Start work after the call, the work before it and the events waited for."""
        key = (*call.key[:3], number)
        work = Operation(key, category, name, do.stream, launcher=call.key, **said)
        self.operations.append(work)
        return work, self.moment(work.start, [asked, *self.streams[key[0], do.stream]])

    def finish(self, work: Operation, sources: Sources) -> Moment:
        """End work; the next on its stream comes after it."""
        end = self.moment(work.end, sources)
        self.streams[work.key[0], work.stream] = [(end, self.machine.turnaround)]
        return end

    def fetch(self, key: Key, do: Do) -> None:
        """Copy to pageable memory: the call returns after the copy, which starts during it."""
        call, copy, begin = self.copy_in_call(key, do, "Memcpy DtoH (Device -> Pageable)")
        end = self.finish(copy, [(begin, do.work[0])])
        self.now[key[:2]] = self.moment(call.end, [(end, self.machine.wake_up)])

    def stage(self, key: Key, do: Do) -> None:
        """Copy much from pageable memory: the call returns some time after the copy starts."""
        name = "Memcpy HtoD (Pageable -> Device)"
        call, copy, begin = self.copy_in_call(key, do, name, size=_STAGED_BYTES)
        self.finish(copy, [(begin, do.work[0])])
        self.now[key[:2]] = self.moment(call.end, [(begin, self.machine.staging)])

    def copy_in_call(
        self, key: Key, do: Do, name: str, **said: int
    ) -> tuple[Operation, Operation, Moment]:
        self.speaks(key)
        call = Operation(key, "cuda_runtime", "cudaMemcpyAsync", do.stream)
        self.operations.append(call)
        start = self.moment(call.start, [(self.now[key[:2]], 0)])
        self.room(key, do)  # it may start at once when it can be launched
        asked = (start, self.machine.copy_latency)
        copy, begin = self.work(call, do, "gpu_memcpy", name, 1, asked, **said)
        return call, copy, begin

    def all_reduce(self, key: Key, do: Do) -> None:
        """Launch a collective of a process group."""
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        self.meet(key, do, name, do.number, group=do.number)

    def send(self, key: Key, do: Do) -> None:
        """Launch a transfer to another rank, which ends when that has received it."""
        self.transfer(key, do, source=key[0], target=do.number)

    def receive(self, key: Key, do: Do) -> None:
        """Launch a transfer from another rank."""
        self.transfer(key, do, source=do.number, target=key[0])

    def transfer(self, key: Key, do: Do, source: int, target: int) -> None:
        name = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
        self.meet(key, do, name, (source, target), group=0, source=source, target=target)

    def meet(self, key: Key, do: Do, name: str, members: object, **said: int) -> None:
        """Launch a kernel that ends after the last of all that take part has started."""
        call = self.call(key, do, "cudaLaunchKernelExC")
        asked = (call.end, self.machine.latency)
        work, start = self.work(call, do, "kernel", name, 1, asked, **said)
        number = self.num_met[key[0], members]
        self.num_met[key[0], members] += 1
        entered = ("entered", members, number)
        self.sources.setdefault(entered, []).append((start, 0))
        self.finish(work, [(entered, do.work[0])])

    def record(self, key: Key, do: Do) -> None:
        """Record an event: what is on the stream now."""
        call = self.call(key, do, "cudaEventRecord")
        self.events[key[0], do.number] = list(self.streams[key[0], do.stream])
        self.recorded_by[key[0], do.number] = call.key

    def wait(self, key: Key, do: Do) -> None:
        """Let a stream wait for an event as it was last recorded."""
        event = (key[0], do.number)
        self.call(key, do, "cudaStreamWaitEvent", record=self.recorded_by.get(event))
        crossing = self.machine.crossing
        self.streams[key[0], do.stream] += [(end, crossing) for end, _ in self.events[event]]

    def synchronize_event(self, key: Key, do: Do) -> None:
        """Wait for an event as it was last recorded."""
        event = (key[0], do.number)
        self.returns(key, do, "cudaEventSynchronize", self.events[event], event)

    def synchronize_stream(self, key: Key, do: Do) -> None:
        """Wait for a stream."""
        self.returns(key, do, "cudaStreamSynchronize", self.streams[key[0], do.stream])

    def synchronize(self, key: Key, do: Do) -> None:
        """Wait for the device."""
        work = [one for (rank, _), found in self.streams.items() if rank == key[0] for one in found]
        self.returns(key, do, "cudaDeviceSynchronize", work)

    def returns(
        self, key: Key, do: Do, name: str, targets: Sources, event: tuple[int, int] | None = None
    ) -> None:
        waits_for = [(end, self.machine.wake_up) for end, _ in targets]
        record = self.recorded_by.get(event) if event else None
        self.call(key, do, name, waits_for, own=self.machine.own, record=record)

    # words between the threads of a rank

    def tell(self, key: Key, do: Do) -> None:
        """Say that another thread may go on."""
        self.moment(("told", key[0], do.number), [(self.now[key[:2]], 0)])

    def hear(self, key: Key, do: Do) -> None:
        """Go on when another thread says so."""
        told = ("told", key[0], do.number)
        now = (self.now[key[:2]], 0)
        self.now[key[:2]] = (*key, "heard")
        self.moment(self.now[key[:2]], [now, (told, self.machine.hand_over)])
