"""Flows that share links by max-min fairness, against a slow solver, closed forms and laws.

Usage: python verification/flows.py

The slow solver below works every rate out anew at every instant, with fractions. Laws are those
of max-min fairness: it keeps all bytes, knows no order and no zero of time. More bandwidth makes
no flow of a single link later; in a network it may, and an example is checked.
"""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
from _report import Checks

import nadi
from nadi.simulation import Routes, Transfers, flow_times, network_graph, transfer_times
from nadi.systems import Dimension, Fabric, LinkChange, Network, System, Torus, Tree

PS = 10**12  # in a second
Way = list[tuple[int, int]]  # links, and how often each is taken
Case = tuple[list[int], list[Way], list[int], list[int]]


def run(capacity: list[int], ways: list[Way], size: list[int], start: list[int]) -> list[int]:
    """Let Nadi run flows: ways of (link, weight), bytes, ps."""
    hops = np.array([hop for way in ways for hop in way], dtype=np.int32).reshape(-1, 2)
    first = np.append(0, np.cumsum([len(way) for way in ways]))
    nothing = np.zeros(len(ways), dtype=np.int64)
    routes = Routes(first, hops[:, 0], hops[:, 1], nothing)
    flows = Transfers(np.arange(len(ways)), np.array(size), np.array(start), nothing - 1, nothing)
    return flow_times(np.array(capacity), routes, flows).tolist()


# the slow solver


def fair_rates(capacity: list[int], ways: dict[int, Way], whole: bool) -> dict[int, Fraction]:
    """Raise all rates together; where a link is full, its flows stay. In whole units, if asked."""
    rate: dict[int, Fraction] = {}
    while len(rate) < len(ways):
        limits = {}
        for link in {link for flow, way in ways.items() if flow not in rate for link, _ in way}:
            taken, wanted = Fraction(0), 0
            for flow, way in ways.items():
                for other, weight in way:
                    if other == link and flow in rate:
                        taken += weight * rate[flow]
                    elif other == link:
                        wanted += weight
            share = (capacity[link] - taken) / wanted
            limits[link] = Fraction(share // 1) if whole else share
        lowest = min(limits.values())
        for flow, way in ways.items():
            if flow not in rate and any(limits[link] == lowest for link, _ in way):
                rate[flow] = Fraction(-1)  # not yet: all links are looked at first
        rate = {flow: lowest if one < 0 else one for flow, one in rate.items()}
    return rate


def slow(case: Case, whole: bool) -> list[Fraction]:
    """Return when each flow ends, in ps; in whole ps, if asked."""
    capacity, ways, size, start = case
    left = {i: Fraction(one) * 1024 * PS for i, one in enumerate(size)}
    end = [Fraction(-1)] * len(size)
    now = Fraction(0)
    while left:
        for flow in [f for f, some in left.items() if some <= 0 and start[f] <= now]:
            end[flow] = now
            del left[flow]
        if not left:
            break
        active = {flow: ways[flow] for flow in left if start[flow] <= now}
        rates = fair_rates(capacity, active, whole) if active else {}
        moments = [Fraction(start[flow]) for flow in left if start[flow] > now]
        for flow, rate in rates.items():
            moment = now + left[flow] / rate
            moments.append(Fraction(-(-moment // 1)) if whole else moment)
        then = min(moments)
        for flow, rate in rates.items():
            left[flow] -= rate * (then - now)
        now = then
    return end


def random_case(seed: int) -> Case:
    """Draw links of 1 to 900 GB/s, and flows of up to 100 MB within a millisecond."""
    draw = random.Random(seed)
    num_links, num_flows = draw.randint(1, 10), draw.randint(1, 14)
    capacity = [draw.choice([1, 25, 50, 450, 900]) * 10**9 * 1024 for _ in range(num_links)]
    if seed % 2:
        capacity = [draw.randint(2**40, 2**50) for _ in capacity]
    ways = []
    for _ in range(num_flows):
        links = draw.sample(range(num_links), draw.randint(1, min(4, num_links)))
        ways.append([(link, draw.choice([1, 1, 1, 2])) for link in links])
    size = [draw.choice([1, 10**6, draw.randint(1, 10**8)]) for _ in ways]
    start = [draw.choice([0, 0, draw.randint(0, 10**9)]) for _ in ways]
    return capacity, ways, size, start


def tiny_case(seed: int) -> Case:
    """Draw links so slow that shares of a few units are rounded, and often meet."""
    draw = random.Random(seed)
    capacity, ways, size, start = random_case(seed)
    return [draw.randint(20, 60) for _ in capacity], ways, [s % 7 for s in size], start


def check_solver(checks: Checks) -> None:
    for what, make, count in (
        ("1 to 900 GB/s", random_case, 200),
        ("a few bytes/s", tiny_case, 200),
    ):
        cases = [make(seed) for seed in range(count)]
        equal = [run(*case) == slow(case, whole=True) for case in cases]
        checks.add_many(f"ends in random networks, links of {what}", sum(equal), count, "in ps")
    worst = Fraction(0)
    cases = [random_case(seed) for seed in range(1000, 1150)]
    num_near = 0
    for case in cases:
        pairs = sorted(zip(run(*case), slow(case, whole=False), strict=True))
        errors = [abs(a - b) for a, b in pairs]
        worst = max(worst, *errors)
        # each end is rounded up to a ps, which may make each later one as much later
        num_near += all(error < k + 1 for k, error in enumerate(errors, 1))
    detail = f"at most {float(worst):.2f} ps off"
    checks.add_many(
        "ends within a ps, for each end before, of those with fractions",
        num_near,
        len(cases),
        detail,
    )


# laws


def check_laws(checks: Checks) -> None:
    cases = [random_case(seed) for seed in range(2000, 2200)]
    moved, shuffled, kept = 0, 0, 0
    for seed, (capacity, ways, size, start) in enumerate(cases):
        draw = random.Random(seed)
        end = run(capacity, ways, size, start)
        later = run(capacity, ways, size, [one + 12_345 for one in start])
        moved += later == [one + 12_345 for one in end]
        links = draw.sample(range(len(capacity)), len(capacity))
        flows = draw.sample(range(len(ways)), len(ways))
        other = run(
            [capacity[links.index(k)] for k in range(len(links))],
            [[(links[link], weight) for link, weight in reversed(ways[f])] for f in flows],
            [size[f] for f in flows],
            [start[f] for f in flows],
        )
        shuffled += other == [end[f] for f in flows]
        kept += all(
            enough_time(capacity[link], link, (ways, size, start), end)
            for link in range(len(capacity))
        )
    checks.add_many("a later beginning of all moves all ends", moved, len(cases))
    checks.add_many("the order of flows and links does not matter", shuffled, len(cases))
    checks.add_many("no link carries its bytes faster than it can", kept, len(cases))
    check_monotony(checks)


def enough_time(
    capacity: int, link: int, flows: tuple[list[Way], list[int], list[int]],
    end: list[int],
) -> bool:  # fmt: skip
    """Tell whether bytes over a link take as long as they need, from each start on."""
    ways, size, start = flows
    weight = [sum(w for at, w in way if at == link) for way in ways]
    for begin in start:
        some = [f for f in range(len(ways)) if weight[f] and start[f] >= begin]
        load = sum(weight[f] * size[f] * 1024 * PS for f in some)
        if some and load > capacity * (max(end[f] for f in some) - begin):
            return False
    return True


def check_monotony(checks: Checks) -> None:
    """On one link nobody is later if it is faster, or somebody sends less."""
    faster, fewer = 0, 0
    for seed in range(200):
        draw = random.Random(seed)
        count, capacity = draw.randint(2, 12), draw.randint(2**40, 2**50)
        size = [draw.randint(1, 10**8) for _ in range(count)]
        start = [draw.choice([0, draw.randint(0, 10**9)]) for _ in size]
        ways = [[(0, 1)]] * count
        before = run([capacity], ways, size, start)
        wider = run([capacity + draw.randint(1, capacity)], ways, size, start)
        faster += all(a <= b for a, b in zip(wider, before, strict=True))
        size[draw.randrange(count)] //= 2
        lighter = run([capacity], ways, size, start)
        fewer += all(a <= b for a, b in zip(lighter, before, strict=True))
    checks.add_many("on one link more bandwidth makes nobody later", faster, 200)
    checks.add_many("on one link fewer bytes make nobody later", fewer, 200)
    # in a network it may: who was held up elsewhere gets more, and takes it from a third one
    ways, size, start = [[(0, 1), (1, 1)], [(1, 1)]], [10**9, 10**9], [0, 0]
    narrow = run([1024 * 10**9, 10240 * 10**9], ways, size, start)
    wide = run([4096 * 10**9, 10240 * 10**9], ways, size, start)
    checks.add(
        "in a network a wider link may make another flow later",
        narrow[1] < wide[1] and wide[0] < narrow[0],
    )


# closed forms


def check_closed_forms(checks: Checks) -> None:
    size, gb = 10**9, 1024 * 10**9
    for count in (1, 2, 10, 1000):
        ends = run([gb * count], [[(0, 1)]] * count, [size] * count, [0] * count)
        checks.add(f"{count} equal flows on a link", ends == [PS] * count)
    # 3 GB/s each until the first has its bytes, then 4, 6 and 12
    ends = run([12 * gb], [[(0, 1)]] * 4, [k * size for k in (3, 7, 13, 25)], [0] * 4)
    checks.add("flows of four sizes on a link", ends == [k * PS for k in (1, 2, 3, 4)])
    # one flow over all of n links, and one more on each: each has half
    ends = run([2 * gb] * 5, [[(k, 1) for k in range(5)], *([(k, 1)] for k in range(5))],
               [size] * 6, [0] * 6)  # fmt: skip
    checks.add("one flow over five links, beside one on each", ends == [PS] * 6)
    ends = run([3 * gb], [[(0, 2)], [(0, 1)]], [size, size], [0, 0])
    checks.add("a flow that takes a link twice", ends == [PS, PS])


def system(num_ranks: int, *fabrics: Fabric, changes: tuple[LinkChange, ...] = ()) -> System:
    dimensions = (Dimension("switch", num_ranks, 50.0, 0.0),)
    return System(Network(dimensions, fabrics=fabrics, changes=changes))


def check_networks(checks: Checks) -> None:
    """Patterns whose time is the bytes over the busiest link."""
    size = 50_000_000  # a millisecond over a link of 50 bytes/ns
    rank = np.arange(64)
    nodes = Fabric("nvlink", Tree((0,), (1,), (450.0,)), ranks=8)

    def over(adapters: int, parents: int, link: float = 0.0, **more: object) -> System:
        tree = Tree((8, 0), (1, parents), (50.0, 50.0))
        named = Fabric(
            "net", tree, node=8, adapters=adapters, routing="by-destination", latency=100.0,
            adapter_link=link,
        )  # fmt: skip
        return system(64, nodes, named, **more)  # type: ignore[arg-type]

    far = (rank + 32) % 64
    slow_link = (LinkChange("net.node0.adapter*.up.*", 0.5),)
    cases = [
        ("each to one in another leaf", over(8, 8), far, 1_000_400),
        ("the same, two to one oversubscribed", over(8, 4), far, 2_000_400),
        ("two ranks to an adapter", over(4, 8), far, 2_000_400),
        ("the same, behind slow PCIe", over(8, 8, 25.0), far, 2_000_600),
        ("within nodes", over(8, 8), rank // 8 * 8 + (rank + 1) % 8, 111_111),
        ("one node with half of its bandwidth", over(8, 8, changes=slow_link), far, 2_000_400),
        ("to the next of a torus",
         system(64, Fabric("ici", Torus((8, 8), (True, True), 50.0))),
         rank // 8 * 8 + (rank + 1) % 8, 1_000_000),
        ("four further on in rings of eight",
         system(64, Fabric("ici", Torus((8, 8), (True, True), 50.0))),
         rank // 8 * 8 + (rank + 4) % 8, 4_000_000),
        ("along lines of eight, to their end",
         system(64, Fabric("ici", Torus((8, 8), (False, True), 50.0))),
         rank // 8 * 8 + 7, 7_000_000),
    ]  # fmt: skip
    for what, machine, dst, expected in cases:
        there = rank != dst
        found = int(transfer_times(machine, rank[there], dst[there], size).max())
        checks.add(f"all ranks send at once: {what}", found == expected, f"{found} ns")
    seven = transfer_times(nadi.load_system("dgx-h100", 8), 0, range(1, 8), 1 << 30)
    bytes_time = round(7 * (1 << 30) / 450)
    checks.add("7 sends of 1 GiB from one GPU", set(seven.tolist()) == {bytes_time + 470})
    check_alone(checks)


def check_alone(checks: Checks) -> None:
    """Compare messages alone with their bytes over the slowest link and all latencies."""
    num_equal = num_tried = 0
    for name in nadi.systems.shipped_systems():
        machine = nadi.load_system(name)
        if machine.network.num_ranks == 1:
            machine = nadi.load_system(name, 2)
        graph = network_graph(machine)
        for dst in {1, machine.network.num_ranks - 1}:
            routes = graph.routes(np.array([0]), np.array([dst]))
            latency, slowest = int(routes.latency[0]), int(graph.capacity[routes.link].min())
            for size in (1, 4096, 10**9):
                expected = -(-size * 1024 * PS // slowest) + latency
                found = int(transfer_times(machine, 0, dst, size)[0])
                num_equal += found == (expected + 500) // 1000
                num_tried += 1
    checks.add_many("messages alone on the systems that ship with Nadi", num_equal, num_tried)


def main() -> None:
    checks = Checks()
    check_solver(checks)
    check_laws(checks)
    check_closed_forms(checks)
    check_networks(checks)
    checks.finish()


if __name__ == "__main__":
    main()
