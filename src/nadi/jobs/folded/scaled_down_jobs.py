"""A job scaled down to few ranks, and a system on which they take the time of all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import polars as pl

from nadi.errors import UsageError
from nadi.files.addresses import check_target, locate
from nadi.files.files import write_pieces
from nadi.files.whole_folders import whole_folder
from nadi.jobs.folded.fewer_ranks import PreservedLink, gathered_bytes, small_system
from nadi.jobs.folded.kept_ranks import KeptRanks, kept_ranks
from nadi.models.job_files import check_place, write_job
from nadi.recordings.folded.folded_job import FoldedJob
from nadi.simulation.engine_driver import simulate_job
from nadi.systems.prices.priced_traces import price_job
from nadi.systems.system import System
from nadi.trace.groups import RankGroups
from nadi.trace.schema import MATCHES
from nadi.trace.trace import Job, Trace

__all__ = ["ScaledDown", "scale_down", "write_scaled"]

SYSTEM_FILE = "system.toml"
NETWORK_FILE = "network.yml"
CONFIG_FILE = "system.json"


class ScaledDown(NamedTuple):
    """A job scaled down.

    Attributes
    ----------
    job, system
        The small job, with times of all operations, and the system for it.
    ranks
        Which rank of the whole job each of its ranks was.
    links
        What its dimensions preserve.
    step_ns, whole_step_ns
        The simulated step of the small job on its system, and of the whole job.
    """

    job: Job
    system: System
    ranks: list[int]
    links: tuple[PreservedLink, ...]
    step_ns: int
    whole_step_ns: int


def scale_down(job: FoldedJob, system: System, size: int) -> ScaledDown:
    """Scale a folded job down to so many ranks, with links on which they take the time of all.

    Each class of ranks has one that stays, and each process group two or more. A dimension of the
    small system is an axis of the groups; bytes of all-gathers grow so that as much is gathered.

    Parameters
    ----------
    system
        What the whole job runs on, which prices operations without a time.
    size
        Number of ranks.

    Raises
    ------
    UsageError
        If no such ranks do; the message names numbers that fit.
    """
    if system.compat or system.slots != "device":
        raise UsageError(
            "system", "times of ASTRA-sim's rules are not preserved", "describe the system in a "
            "file of Nadi's own",
        )  # fmt: skip
    kept = kept_ranks(job, size)
    priced, _ = price_job(job, system)
    assert isinstance(priced, FoldedJob)
    small, links = small_system(priced, system, kept)
    made = _small_job(priced, kept)
    return ScaledDown(
        made, small, kept.ranks.tolist(), links, simulate_job(made, small).makespan,
        simulate_job(priced, system).makespan,
    )  # fmt: skip


def _small_job(job: FoldedJob, kept: KeptRanks) -> Job:
    assert job.rank_groups is not None
    done: dict[int, Trace] = {}
    traces = []
    for rank in kept.ranks.tolist():
        trace = job.traces[rank]
        if id(trace) not in done:
            done[id(trace)] = _small_trace(trace, job.rank_groups, kept)
        traces.append(done[id(trace)])
    return Job(tuple(traces), MATCHES.empty(), job.issues, rank_groups=kept.groups)


def _small_trace(trace: Trace, groups: RankGroups, kept: KeptRanks) -> Trace:
    """Return a trace whose gathering members give more, as there are fewer of them."""
    nodes = trace.nodes
    size = nodes["comm_bytes"].to_numpy().copy()
    kinds, group = nodes["comm_type"].cast(pl.String).to_numpy(), trace.column("group")
    for row, role in enumerate(trace.groups["name"].to_list()):
        before, after = groups.members[role].shape[1], kept.groups.members[role].shape[1]
        for comm_type in ("all_gather", "gather"):
            chosen = np.flatnonzero((group == row) & (kinds == comm_type) & (size > 0))
            size[chosen] = [gathered_bytes(comm_type, int(one), before, after)
                            for one in size[chosen]]  # fmt: skip
    return replace(
        trace, nodes=nodes.with_columns(comm_bytes=pl.Series(size)), world_size=kept.ranks.size
    )


def write_scaled(small: ScaledDown, folder: Path | str, *, overwrite: bool = False) -> None:
    """Write the traces of a job scaled down, its system, and the same for ASTRA-sim.

    ``trace.N.et``, ``comm_group.json``, ``system.toml``; ``network.yml`` and ``system.json``.

    Raises
    ------
    InputError
        If a file exists already and ``overwrite`` is not given, or cannot be written.
    """
    place = locate(folder)
    files = {
        SYSTEM_FILE: _system_text(small), NETWORK_FILE: _network_text(small.system),
        CONFIG_FILE: _config_text(small.system),
    }  # fmt: skip
    for name in files:
        check_target(place / name, (), overwrite=overwrite)
    beyond = check_place(place, "trace", len(small.job.traces), overwrite=overwrite)
    with whole_folder(place, overwrite=overwrite, instead_of=beyond) as inside:
        write_job(small.job, inside)
        for name, text in files.items():
            write_pieces(inside / name, [text.encode()])


def _system_text(small: ScaledDown) -> str:
    """Return the system as a file of Nadi's own."""
    system = small.system
    lines = [
        f"# {len(small.ranks)} ranks in place of {_product(small)}: links are such that",
        "# communication takes the times of the whole job; operations have their times.",
        "[compute]",
        'time = "recorded"',
        "",
    ]
    for link, dimension in zip(small.links, system.network.dimensions, strict=True):
        lines += [
            f"# {link.axis}: {link.before} ranks before",
            "[[network.dimensions]]",
            'topology = "switch"',
            f"size = {dimension.size}",
            f'bandwidth = "{dimension.bandwidth * 1e9:.0f} B/s"',
            f'latency = "{dimension.latency:.3f} ns"',
            "",
        ]
    lines += ["[collectives]", 'all_reduce = "ring"', 'reduce_scatter = "ring"',
              'all_gather = "ring"', 'all_to_all = "direct"', 'endpoint_delay = "0 ns"',
              "", "[scheduling]", 'slots = "device"', ""]  # fmt: skip
    return "\n".join(lines)


def _product(small: ScaledDown) -> int:
    return int(np.prod([link.before for link in small.links], dtype=np.int64))


def _network_text(system: System) -> str:
    """Return the network for ASTRA-sim, which counts GB as GiB."""
    dimensions = system.network.dimensions
    rates = [f"{one.bandwidth * 1e9 / (1 << 30):.6f}" for one in dimensions]
    return "\n".join([
        f"topology: [{', '.join('Switch' for _ in dimensions)}]",
        f"npus_count: [{', '.join(str(one.size) for one in dimensions)}]",
        f"bandwidth: [{', '.join(rates)}]",
        f"latency: [{', '.join(f'{one.latency:.0f}' for one in dimensions)}]", "",
    ])  # fmt: skip


def _config_text(system: System) -> str:
    ways = {
        f"{name}-implementation": [algorithm] * len(system.network.dimensions)
        for name, algorithm in (
            ("all-reduce", "ring"), ("reduce-scatter", "ring"), ("all-gather", "ring"),
            ("all-to-all", "direct"),
        )
    }  # fmt: skip
    said = {
        "scheduling-policy": "FIFO", "endpoint-delay": 0, "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1, **ways, "collective-optimization": "localBWAware",
        "local-mem-bw": 1600,
    }  # fmt: skip
    return msgspec.json.format(msgspec.json.encode(said), indent=2).decode() + "\n"
