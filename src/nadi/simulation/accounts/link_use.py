"""The physical links of a simulated job: what they carried, for whom, and when they were full.

Links are those of :func:`nadi.simulation.network_graph`, over which transfers share bandwidth, and
those of memory tiers and the paths to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.simulation.accounts.link_accounts import Account, add_traffic, link_table
from nadi.simulation.engine.codes import NodeKind
from nadi.simulation.flows.dimension_links import owned_by
from nadi.simulation.flows.memory_links import access_number
from nadi.simulation.lowering.shared_routes import AllLinks
from nadi.simulation.rules import rules_of
from nadi.simulation.simulation import Simulation
from nadi.simulation.work.recorded_work import STORE, tiers_of_nodes
from nadi.systems.system import Network
from nadi.trace.arrays import Floats, Ints
from nadi.trace.issues import IssueLog
from nadi.trace.rows import number_rows
from nadi.trace.schema import COMM_TYPES, LINK_USE

_AT_ONCE = 1 << 22  # messages
_MESSAGES = "messages"
IN_GROUP = " in group "  # between the type of a collective and the name of its group
_ROUNDING = 1e-3  # of times to whole ns


@checked
def link_use(simulation: Simulation) -> pl.DataFrame:
    """Compute what each physical link carried, for whom, and for how long it was full.

    A collective whose time is known without its messages (NCCL's, or a measured one) carries
    those of its rings, at most as many bytes as links can carry in that time.

    Returns
    -------
    polars.DataFrame
        ``schema.LINK_USE``: links that carried anything, the busiest first. O(links of the ways
        of all messages, those of equal collectives once).
    """
    links, users = AllLinks(simulation.system), _Users(simulation)
    accounts: dict[int, _Account] = {}

    def of_user(user: int) -> _Account:
        if user not in accounts:
            accounts[user] = _Account(links, simulation.system.network)
        return accounts[user]

    def account_of(node: int) -> Account:
        if node >= 0:
            return of_user(users.of_collective(node))
        if not simulation.jobs:
            return of_user(users.of_messages(""))
        return _ByJob(
            [(job.ranks, of_user(users.of_messages(job.name))) for job in simulation.jobs]
        )

    add_traffic(simulation, account_of)
    for user, number, num_bytes in _accesses(simulation, users):
        of_user(user).add_accesses(number, num_bytes)
    loads = [
        (user, load) for user, account in accounts.items() for load in account.loads
    ]  # fmt: skip
    return _table(simulation, links, users.names, loads)


def overload_issues(simulation: Simulation) -> pl.DataFrame:
    """Tell how many links would need longer for their bytes than the job takes.

    - Returns: ``schema.ISSUES``; empty by rules by which transfers share links or wait for them.
    """
    log, system = IssueLog(), simulation.system
    if not (system.network.congestion or rules_of(system).links_are_shared):
        used = link_table(simulation)["utilization"]
        most, over = float(used.max() or 0.0), int((used > 1 + _ROUNDING).sum())  # type: ignore[arg-type]
        log.add(
            "simulate.links-overloaded", "warning", over,
            "links have more to carry than they can in the time of the job, as by ASTRA-sim's "
            "rules transfers do not slow each other down: the time is too short, by a factor of "
            f"{most:.2f} at least",
            "simulate by the default rules (--default-rules, or --system), or with --congestion",
        )  # fmt: skip
    return log.table()


class _Load(NamedTuple):
    """What a user loads on links: int64, shape (links,) each, but for ``units``, float64.

    ``units`` are bytes, but on devices of memory that reads and writes share: there a byte of
    either counts as its bandwidth says.
    """

    link: Ints
    num_bytes: Ints
    units: Floats


def _accesses(simulation: Simulation, users: _Users) -> Iterator[tuple[int, Ints, Ints]]:
    """Yield who loads from and stores to memory tiers, the numbers of the ways, and the bytes."""
    program, system = simulation.program, simulation.system
    node = np.flatnonzero(simulation.trail.kind[: program.num_nodes] == NodeKind.TRANSFER)
    if not node.size:
        return
    tier, store = tiers_of_nodes(program, system)[node], program.kind[node] == STORE
    everybody = np.arange(simulation.cycles.size)
    jobs = [(job.name, job.ranks) for job in simulation.jobs] or [("", everybody)]
    for number, stores in product(range(len(system.tiers)), (False, True)):
        chosen = node[(tier == number) & (store == stores)]
        of_own = np.zeros(program.num_ranks, dtype=np.int64)
        np.add.at(of_own, program.rank[chosen], simulation.trail.size[chosen])
        num_bytes = of_own[simulation.like]
        what = f"{'stores to' if stores else 'loads from'} {system.tiers[number].name}"
        for job, ranks in jobs:
            used = ranks[num_bytes[ranks] > 0]
            if used.size:
                way = access_number(system, used, number, store=stores)
                yield users.named(job, what), way, num_bytes[used]


def _table(
    simulation: Simulation, links: AllLinks, names: list[str], loads: Sequence[tuple[int, _Load]]
) -> pl.DataFrame:
    """Create the table from what users load on links."""
    nothing = np.zeros(0, dtype=np.int64)
    parts = zip(_Load(nothing, nothing, np.zeros(0)), *(load for _, load in loads), strict=True)
    link, num_bytes, units = (np.concatenate(part) for part in parts)
    user = np.repeat(
        np.array([number for number, _ in loads], dtype=np.int64),
        [load.link.size for _, load in loads],
    )
    frame = pl.DataFrame({
        "link": link, "user_bytes": num_bytes, "units": units,
        "users": pl.Series(names, dtype=pl.String).gather(user),
    })  # fmt: skip
    summed = (
        frame.group_by("link", "users", maintain_order=True)
        .agg(pl.col("user_bytes", "units").sum())
        .filter(pl.col("user_bytes") > 0)
        .sort("user_bytes", descending=True, maintain_order=True)
        .group_by("link").agg(pl.col("user_bytes").sum().alias("bytes"), "users",
                              pl.col("user_bytes"), pl.col("units").sum())
        .sort("link")
    )  # fmt: skip
    link, carried = summed["link"].to_numpy(), summed["bytes"].to_numpy()
    full = np.full(link.size, -1, dtype=np.int64)
    if simulation.trail.full.size:
        full = simulation.trail.full[_own_links(simulation, links, link)]
    busy = summed["units"].to_numpy() / links.bandwidth[link]
    time, names_of_links = max(simulation.makespan, 1), links.names
    columns = {
        "link": [names_of_links[one] for one in link.tolist()],
        "bandwidth": links.bandwidth[link] * (carried / summed["units"].to_numpy()),
        "bytes": carried,
        "utilization": busy / time,
        "full": full,
        "users": summed["users"],
        "user_bytes": summed["user_bytes"],
    }
    order = np.lexsort((link, -full, -busy))
    return LINK_USE.build(link.size, columns)[order]


def _own_links(simulation: Simulation, links: AllLinks, link: Ints) -> Ints:
    """Return the links of the ranks that were simulated, for those of the ranks they stand for."""
    lowest = np.unique(simulation.like, return_index=True)[1]
    if lowest.size == simulation.like.size:
        return link
    network, home = simulation.system.network, lowest[simulation.like]
    own = owned_by(network.dimensions, network.num_ranks, link, home)
    return links.memory.owned_by(own, home)


class _Users:
    """Who uses links: collectives by type and group, and messages; of several jobs by job."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._numbers: dict[str, int] = {}
        self._job = {rank: job.name for job in simulation.jobs for rank in job.ranks.tolist()}

    @property
    def names(self) -> list[str]:
        return list(self._numbers)

    def of_collective(self, node: int) -> int:
        """Return the number of the type and group of a collective, one of whose nodes is given."""
        program, trail = self._simulation.program, self._simulation.trail
        job, group = self._job.get(int(program.rank[node]), ""), int(program.group[node])
        name = COMM_TYPES[int(program.comm_type[node])]
        if trail.peer[node] and group >= 0:
            own = self._simulation.group_label(group).removeprefix(f"{job}/")
            name = f"{name}{IN_GROUP}{own}"
        return self.named(job, name)

    def of_messages(self, job: str) -> int:
        """Return the number of the messages of a job."""
        return self.named(job, _MESSAGES)

    def named(self, job: str, what: str) -> int:
        """Return the number of a user of a job; of one job alone, its name is empty."""
        name = f"{job}: {what}" if job else what
        return self._numbers.setdefault(name, len(self._numbers))


class _ByJob:
    """Tells messages to the account of the job whose rank sends them."""

    def __init__(self, accounts: Sequence[tuple[Ints, _Account]]) -> None:
        self._accounts = accounts

    def add_messages(self, src: Ints, dst: Ints, num_bytes: Ints) -> None:
        """Add messages from rank to rank."""
        for ranks, account in self._accounts:
            own = np.isin(src, ranks)
            account.add_messages(src[own], dst[own], num_bytes[own])

    def add_lines(self, d: int, src: Ints, dst: Ints, num_bytes: Ints, inner: int = -1) -> None:
        """Add nothing: only collectives do that."""
        raise NotImplementedError


class _Account:
    """Adds up what messages of one user load on links."""

    def __init__(self, links: AllLinks, network: Network) -> None:
        self._links, self._network = links, network
        self.loads: list[_Load] = []

    def add_messages(self, src: Ints, dst: Ints, num_bytes: Ints) -> None:
        """Add messages from rank to rank, each over all links of its way."""
        for first in range(0, src.size, _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            message, link = self._links.hops(src[part], dst[part])
            self._add(link, num_bytes[part][message], 1.0)

    def add_accesses(self, number: Ints, num_bytes: Ints) -> None:
        """Add accesses of memory tiers, by the numbers of their ways."""
        access, link, load = self._links.memory.hops(number)
        self._add(link, num_bytes[access], load)

    def _add(self, link: Ints, num_bytes: Ints, load: Floats | float) -> None:
        if not link.size:
            return
        number, at = number_rows([link])
        total, units = (
            np.bincount(number, weights=num_bytes * one).astype(np.float64) for one in (1.0, load)
        )
        self.loads.append(_Load(link[at], total.astype(np.int64), units))

    def add_lines(self, d: int, src: Ints, dst: Ints, num_bytes: Ints, inner: int = -1) -> None:
        """Add the same messages in every line of ranks that differ in one dimension only."""
        sizes = [dimension.size for dimension in self._network.dimensions]
        stride = int(np.prod(sizes[:d], dtype=np.int64))
        line = np.arange(self._network.num_ranks // sizes[d])
        if inner >= 0:
            line = line[line % stride == inner]
        first = line % stride + line // stride * stride * sizes[d]
        at_once = max(_AT_ONCE // max(src.size, 1), 1)
        for begin in range(0, first.size, at_once):
            part = first[begin : begin + at_once, None]
            one, other = ((part + stride * end).ravel() for end in (src, dst))
            self.add_messages(one, other, np.tile(num_bytes, part.size))
