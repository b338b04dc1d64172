"""Kernels of a simulated recording, as fast as the communication beside them on the system allows.

The recording tells how much slower each kernel is beside communication. On another system that
takes other times, and runs beside other kernels.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from nadi.graph.contention import learn_contention
from nadi.simulation.simulation import Simulation
from nadi.simulation.work.program import Program
from nadi.simulation.workload.simulator_nodes import PlayedRank
from nadi.trace.arrays import Ints
from nadi.trace.schema import COMMUNICATION_KINDS, NODE_KINDS
from nadi.trace.trace import Job, Trace
from nadi.whatif.contended_replay import MOST_ROUNDS, SlowedKernels

_TALKS = [NODE_KINDS.index(kind) for kind in COMMUNICATION_KINDS]


def with_contention(
    job: Job, program: Program, ranks: Sequence[PlayedRank], run: Callable[[Program], Simulation]
) -> Simulation:
    """Simulate a recording until its kernels take what communication beside them makes of them.

    - ``job``: The recording.
    - ``program``, ``ranks``: What is simulated of it, and where that comes from.
    - ``run``: Simulates the program with other durations.
    - Returns: After eight runs at most, and after one if the recording tells of no slowed kernel.
      Its traces have the kernels as long as they are simulated.
    """
    known = learn_contention(job)
    done = run(program)
    if not known.is_known or len(ranks) != len(job.traces):
        return done
    ratio, beside = np.ones(program.num_nodes), np.zeros(program.num_nodes)
    for number, rank in enumerate(ranks):
        mine = np.arange(program.first[number], program.first[number + 1])
        row = rank.node[program.row[mine]]
        # what is simulated in parts keeps its time
        whole = (row >= 0) & (rank.first[row] == rank.last[row])
        of_nodes = known.runs[number].of_nodes(job.traces[number].nodes.height)
        ratio[mine[whole]], beside[mine[whole]] = (column[row[whole]] for column in of_nodes)
    node = np.flatnonzero(ratio > 1)  # not so of those that are unknown
    talking = np.flatnonzero(np.isin(program.kind, _TALKS) & ~program.is_cpu)
    kernels = SlowedKernels(1 - 1 / ratio[node], program.rank[node], talking, program.rank[talking])
    recorded = program.duration
    work = recorded[node] - kernels.slowed * beside[node]
    for _ in range(MOST_ROUNDS - 1):
        time = np.stack([done.start, done.end], axis=1).reshape(-1)
        length = kernels.lengths(time, done.start[node], work, program.duration[node])
        if (length == program.duration[node]).all():
            break
        duration = program.duration.copy()
        duration[node] = length
        program = replace(program, duration=duration)
        done = run(program)
    slowed = node[program.duration[node] != recorded[node]]
    return replace(done, traces=_with_lengths(done.traces, program, recorded, slowed))


def _with_lengths(
    traces: Sequence[Trace], program: Program, recorded: Ints, node: Ints
) -> tuple[Trace, ...]:
    """Return traces of which some nodes take as much longer as they do in a program."""
    found = []
    for number, trace in enumerate(traces):
        mine = node[(node >= program.first[number]) & (node < program.first[number + 1])]
        length = trace.column("duration").copy()
        row, before = program.row[mine], np.maximum(recorded[mine], 1)
        length[row] = (length[row] * program.duration[mine] + before // 2) // before
        nodes = trace.nodes.with_columns(duration=pl.Series(length))
        found.append(replace(trace, nodes=nodes) if mine.size else trace)
    return tuple(found)
