"""Serving engines, slow and plain: lists, dictionaries, and one moment after the other."""

from __future__ import annotations

import bisect
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from nadi.serving.engines import EngineRules
from nadi.serving.requests import Requests
from nadi.serving.step_times import StepTimes

FAR = 1 << 62
_WORD = (1 << 64) - 1


def mix(stream: int, number: int) -> int:
    x = (stream * 0x9E3779B97F4A7C15 + number) & _WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _WORD
    return ((x ^ (x >> 31)) >> 1) | 1


def right_guesses(rules: EngineRules, request: int, generated: int, drafts: int) -> int:
    for right in range(drafts):
        x = (rules.seed * 0x9E3779B97F4A7C15 + request * 0xD1B54A32D192ED03) & _WORD
        x = (x + generated + right) & _WORD
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _WORD
        if (x ^ (x >> 31)) >> 11 >= round(rules.acceptance * 2**53):
            return right
    return drafts


def along(points: Any, value: float) -> tuple[int, float]:
    k = min(max(bisect.bisect_right(list(points), value) - 1, 0), len(points) - 2)
    return k, (value - points[k]) / (points[k + 1] - points[k])


def attention(times: StepTimes, *where: float) -> float:
    places = [along(axis, value) for axis, value in zip(times.axes, where, strict=True)]
    total = 0.0
    for corner in range(16):
        weight, cell = 1.0, []
        for axis, (place, share) in enumerate(places):
            is_far = corner >> axis & 1
            weight *= share if is_far else 1 - share
            cell.append(place + is_far)
        total += weight * times.attention[tuple(cell)]
    return total


def crowded(times: StepTimes, chunk: float, before: float) -> float:
    grid = times.attention[:, :, 0, 0] if times.crowded is None else times.crowded
    row, down = along(times.axes[0], chunk)
    column, right = along(times.axes[1], before)
    rows = [(1 - right) * grid[row + k, column] + right * grid[row + k, column + 1] for k in (0, 1)]
    return float((1 - down) * rows[0] + down * rows[1])


class Request:
    def __init__(self, requests: Requests, number: int, rules: EngineRules) -> None:
        self.number = number
        self.prompt, self.output = int(requests.prompt[number]), int(requests.output[number])
        self.known, self.computed, self.generated = self.prompt, 0, 0
        self.blocks: list[int] = []
        self.is_moved = False
        self.queued = self.first = self.last = -1
        self.hits = self.put_out = 0
        self.ready = self.passed = 0
        self.source = self.link = -1
        self.state = "waiting"
        self.flight = 0
        begin = int(requests.told[:number].sum())
        self.told = [int(one) for one in requests.content[begin:][: requests.told[number]]]
        self.shared = min(int(requests.shared[number]), self.prompt) // rules.block
        self.group, self.stream = int(requests.group[number]), int(requests.stream[number])

    def content(self, number: int) -> int:
        if number < len(self.told):
            return self.told[number]
        return mix(self.group if number < self.shared else self.stream, number)


class Memory:
    """Blocks that nobody uses in the order in which they are given away; and what they hold."""

    def __init__(self, size: int) -> None:
        self.free: OrderedDict[int, None] = OrderedDict.fromkeys(range(size))
        self.users, self.holds = [0] * size, [0] * size
        self.found: dict[int, int] = {}

    def take(self) -> tuple[int, int]:
        block, _ = self.free.popitem(last=False)
        content, self.holds[block] = self.holds[block], 0
        if content and self.found.get(content) == block:
            del self.found[content]
        return block, content

    def register(self, block: int, content: int) -> None:
        self.holds[block] = content
        self.found.setdefault(content, block)

    def let_go(self, block: int) -> None:
        self.users[block] -= 1
        if self.users[block] == 0:
            self.free[block] = None


@dataclass
class Flight:
    start: int
    end: int
    shares: list[float]  # of each link, for which its collectives keep it
    events: list[list[tuple[Request, bool]]]  # of each group


class Instance:
    """Groups of ranks that step together, each with requests of its own."""

    def __init__(self, number: int, first: int, server: Server) -> None:
        self.number, self.server, self.rules = number, server, server.rules
        self.only_reads = number < server.rules.prefills
        self.kind = server.rules.kinds[0 if self.only_reads else 1]
        self.times = server.times[0 if self.only_reads else 1]
        # how long each number of tokens and of rows takes, looked up by every step
        self.by_tokens = self.times.by_tokens(self.rules.budget)
        self.by_rows = self.times.by_rows(max(self.rules.sequences, self.rules.budget) + 1)
        self.wires = self.times.by_links(self.rules.budget, server.num_links)
        self.groups = [Group(first + k, self) for k in range(self.kind.groups)]
        self.flights: list[Flight] = []
        self.wake, self.sleeps, self.free_at = FAR, True, 0
        self.launched = self.landed = self.steps = self.beside = self.waited = 0

    @property
    def load(self) -> int:
        return sum(group.load for group in self.groups)

    def look(self) -> None:
        now = self.wake
        while self.flights and self.flights[0].end <= now:
            flight = self.flights.pop(0)
            self.landed += 1
            for group, events in zip(self.groups, flight.events, strict=True):
                group.land(flight.end, events)
        depth = self.kind.stages if self.kind.stages > 1 else 1 + self.rules.overlaps
        for group in self.groups:
            group.begin()
        if len(self.flights) < depth:
            self.make(now)
        is_made = any(group.left < self.rules.budget for group in self.groups)
        if is_made:
            self.launch(now)
        self.sleeps = not self.flights
        if not self.flights:
            ready = [one.ready for group in self.groups for one in group.loading]
            self.wake = min(ready, default=FAR)
            return
        self.wake = self.flights[0].end
        if is_made and len(self.flights) < depth:
            self.wake = min(self.wake, now if self.kind.stages == 1 else self.free_at)

    def make(self, now: int) -> None:
        can_admit = []
        for group in self.groups:
            if not group.continue_running(now):
                group.admit_loaded(now)
                can_admit.append(group)
        if not (self.rules.wait_steps and self.waits_for_more()):
            for group in can_admit:
                group.admit(now)

    def waits_for_more(self) -> bool:
        if not all(group.decodes for group in self.groups):
            return False
        first, rules = self.groups[0], self.rules
        is_full = len(first.running) >= rules.sequences
        if len(self.groups) == 1 and (is_full or not first.waiting):
            return False
        self.waited += 1
        if any(group.lacks_prompts() for group in self.groups) and self.waited <= rules.wait_steps:
            return True
        self.waited = 0
        return False

    def launch(self, now: int) -> None:
        alone = [group.alone() for group in self.groups]
        tokens = [self.rules.budget - group.left for group in self.groups]
        took = max(alone) + self.by_tokens[-(-sum(tokens) // len(tokens)), 3]
        has_chunks = any(group.chunks for group in self.groups)
        host = self.rules.host + (self.rules.launch if has_chunks else 0)
        took = max(took, host) if self.rules.overlaps else took + host
        took = max(1, round(took))
        start = max(now, self.free_at)
        shares = [min(1.0, row[max(tokens)] / took) for row in self.wires]
        longer = self.slowed_by_blocks(shares, start, took)
        self.beside += longer
        took += longer
        self.free_at = start + max(1, took // self.kind.stages)
        events = [group.events for group in self.groups]
        self.flights.append(Flight(start, start + took, shares, events))
        self.launched += 1
        self.steps += 1

    def slowed_by_blocks(self, shares: list[float], start: int, took: int) -> int:
        """Have links busy for longer, beside a step; return how much longer the step takes."""
        behind = max(start, self.flights[-1].end) if self.flights else start
        return sum(
            max(group.slowed_by_blocks(link, share, start, behind, took) for group in self.groups)
            for link, share in enumerate(shares)
        )


class Group:
    def __init__(self, number: int, instance: Instance) -> None:
        self.number, self.instance, self.rules = number, instance, instance.rules
        self.server, self.kind, self.times = instance.server, instance.kind, instance.times
        self.only_reads = instance.only_reads
        self.memory = Memory(self.kind.blocks)
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.loading: list[Request] = []
        self.load = 0

    def begin(self) -> None:
        self.left, self.decodes, self.contexts = self.rules.budget, 0, 0
        self.rows = 0
        self.chunks: list[tuple[int, int]] = []
        self.events: list[tuple[Request, bool]] = []

    def wanted(self, request: Request) -> int:
        return 1 if self.only_reads else request.output

    def land(self, end: int, events: list[tuple[Request, bool]]) -> None:
        for request, is_end in events:
            if not is_end:
                request.first = end
                continue
            if request.state == "running":
                self.give_up(request)
                self.running.remove(request)
            request.state = "gone"
            self.load -= 1
            if request.generated < request.output:
                request.is_moved, request.computed, request.source = True, 0, self.number
                request.flight = 0
                self.server.come(end, request)
                continue
            request.last = end
            self.server.finish(request)

    def give_up(self, request: Request) -> None:
        for block in reversed(request.blocks):
            self.memory.let_go(block)
        request.blocks = []

    def extend(self, request: Request, need: int) -> None:
        for _ in range(need):
            block, _ = self.memory.take()
            self.memory.users[block] = 1
            request.blocks.append(block)

    def continue_running(self, now: int) -> bool:
        put_out, k = False, 0
        while k < len(self.running) and self.left > 0:
            request = self.running[k]
            under_way = self.kind.stages > 1 and request.flight > self.instance.landed
            if request.generated == self.wanted(request) or under_way:
                k += 1
                continue
            tokens = request.known - request.computed
            if tokens == 1 and request.generated > 0:
                beyond = self.wanted(request) - request.generated - 1
                tokens += min(self.rules.drafts, beyond)
            tokens = min(tokens, self.left)
            need = -(-(request.computed + tokens) // self.rules.block) - len(request.blocks)
            while need > len(self.memory.free) and request in self.running:
                put_out = True
                last = self.running.pop()
                self.give_up(last)
                last.put_out += 1
                last.state = "gone"
                if last.generated < self.wanted(last):
                    last.computed, last.state = 0, "waiting"
                    self.waiting.insert(0, last)
            if request not in self.running:
                break
            self.extend(request, need)
            self.compute(request, tokens, now)
            k += 1
        return put_out

    def compute(self, request: Request, tokens: int, now: int) -> None:
        self.left -= tokens
        request.flight = self.instance.launched + 1
        before = request.computed
        if request.known - request.computed == 1 and request.generated > 0:
            self.decodes += 1
            self.contexts += request.computed
            right = right_guesses(self.rules, request.number, request.generated, tokens - 1)
            gained = min(self.wanted(request) - request.generated, 1 + right)
            request.computed += gained
            rows = tokens
        else:
            self.chunks.append((tokens, request.computed))
            request.computed += tokens
            gained = rows = int(request.computed == request.known)
        if self.rules.reuses:
            for k in range(before // self.rules.block, request.computed // self.rules.block):
                if not self.memory.holds[request.blocks[k]]:
                    self.memory.register(request.blocks[k], request.content(k))
                    self.server.store(self, request.content(k), now)
        if gained:
            self.rows += rows
            if request.generated == 0:
                self.events.append((request, False))
            request.generated += gained
            request.known += gained
            if request.generated == self.wanted(request):
                self.events.append((request, True))

    def admit_loaded(self, now: int) -> None:
        for request in list(self.loading):
            fits = self.left > 0 and len(self.running) < self.rules.sequences
            if request.ready <= now and fits:
                self.loading.remove(request)
                self.run(request, now)
                self.compute(request, min(request.known - request.computed, self.left), now)

    def admit(self, now: int) -> None:
        while self.waiting and self.left > 0:
            if max(len(self.running), len(self.loading)) >= self.rules.sequences:
                break
            if not self.has_room(self.waiting[0], now):
                break
            self.waiting.pop(0)

    def lacks_prompts(self) -> bool:
        tokens = self.rules.budget - self.left + sum(request.known for request in self.waiting)
        is_full = len(self.running) >= self.rules.sequences
        return is_full or not self.waiting or tokens < self.rules.wait_tokens

    def run(self, request: Request, now: int) -> None:
        if self.rules.prefills and request.generated == 1:
            request.first = now
        self.running.append(request)
        request.state = "running"

    def has_room(self, request: Request, now: int) -> bool:
        size, memory = self.rules.block, self.memory
        hits: list[int] = []
        while self.rules.reuses and len(hits) < (request.known - 1) // size:
            block = memory.found.get(request.content(len(hits)))
            if block is None:
                break
            hits.append(block)
        loads = 0
        if request.is_moved:
            loads = -(-(request.known - 1) // size) - len(hits)
        else:
            while len(hits) + loads < (request.known - 1) // size:
                if self.server.tier_of(self, request.content(len(hits) + loads)) is None:
                    break
                loads += 1
        tokens = min(request.known - len(hits) * size, self.left)
        least = -(-request.known // size)
        if not self.rules.reserves and not loads:
            least = -(-(len(hits) * size + tokens) // size)
        unused = sum(not memory.users[block] for block in hits)
        if least - len(hits) + unused > len(memory.free):
            return False
        for block in hits:
            memory.free.pop(block, None)
            memory.users[block] += 1
        request.blocks, request.computed = hits.copy(), len(hits) * size
        request.hits += request.computed
        if not loads:
            need = -(-(request.computed + tokens) // size) - len(hits)
            self.extend(request, need)
            self.run(request, now)
            self.compute(request, tokens, now)
            return True
        self.extend(request, -(-request.known // size) - len(hits))
        request.ready = self.server.load(self, request, len(hits), loads, now)
        reached = min((len(hits) + loads) * size, request.known - 1)
        request.hits += reached - request.computed
        if self.rules.reuses:
            for k in range(len(hits), reached // size):
                memory.register(request.blocks[k], request.content(k))
        request.computed, request.is_moved, request.state = reached, False, "loading"
        self.loading.append(request)
        return True

    def alone(self) -> float:
        """Return how long a group's part of the step takes without experts."""
        times, tokens = self.times, self.rules.budget - self.left
        dense = self.instance.by_tokens[tokens]
        took = dense[0] - dense[3] + self.instance.by_rows[self.rows]
        mean = self.contexts / self.decodes if self.decodes else 0.0
        longest = max((attention(times, *chunk, 0, 0) for chunk in self.chunks), default=0.0)
        took += max(longest, sum(crowded(times, *chunk) for chunk in self.chunks))
        chunk = self.chunks[-1] if self.chunks else (0, 0)
        if self.decodes:
            beside = attention(times, *chunk, self.decodes, mean)
            took += beside - (attention(times, *chunk, 0, 0) if self.chunks else 0)
        return float(took)

    def slowed_by_blocks(self, link: int, share: float, start: int, behind: int, took: int) -> int:
        slowed = [0]
        for way in ("read", "write"):
            channel = link, self.number, way
            free = self.server.channels.get(channel, 0)
            slowed.append(round(share * min(max(0, free - start), took)))
            self.server.channels[channel] = free + round(share * min(max(0, free - behind), took))
        if not max(slowed):
            return 0
        late = [one for one in self.loading if one.link == link]
        if self.only_reads and link == self.rules.moved_link:
            for other in self.server.groups[self.rules.reading_groups :]:
                late += [one for one in other.loading
                         if one.link == link and one.source == self.number]  # fmt: skip
        for request in late:
            rest = min(max(0, request.passed - behind), took)
            request.passed += round(share * rest)
            request.ready = max(request.ready, request.passed)
        return max(slowed)

    def beside_steps(self, link: int, begin: int, took: int) -> int:
        """Have steps under way and a transfer slow each other; return when that ends."""
        here, others = self.instance, 0
        for group in here.groups:
            for way in ("read", "write"):
                others = max(others, self.server.channels.get((link, group.number, way), 0))
        first, free_at = (here.flights[0].end if here.flights else 0), here.free_at
        at, left, longer = begin, took, 0
        for flight in here.flights:
            share = flight.shares[link]
            flight.start, flight.end = flight.start + longer, flight.end + longer
            alone = min(left, max(0, flight.start - at))
            at, left = at + alone, left - alone
            both = min(left, max(0, flight.end - at))
            slowed = round(share * max(0, at + both - max(at, others)))
            at, left = at + both + round(share * both), left - both
            flight.end += slowed
            longer += slowed
            here.beside += slowed
        if longer:
            here.free_at += longer
            if here.wake == first:
                here.wake = here.flights[0].end
            elif here.wake == free_at:
                here.wake = here.free_at
        return at + left


class Server:
    """Serve requests; afterwards they have their times."""

    def __init__(self, requests: Requests, rules: EngineRules, times: list[StepTimes]) -> None:
        self.rules, self.times = rules, times
        self.requests = [Request(requests, k, rules) for k in range(requests.arrival.size)]
        self.arrivals = [
            (int(requests.arrival[k]), 0, k) for k in range(len(self.requests))
            if requests.follows[k] < 0
        ]  # fmt: skip
        self.followers = {
            int(before): (k, int(requests.arrival[k]))
            for k, before in enumerate(requests.follows) if before >= 0
        }  # fmt: skip
        self.turns = [0, 0]
        self.tiers = [
            [Memory(max(1, tier.blocks)) for _ in range(rules.all_groups)] for tier in rules.tiers
        ]
        self.num_links = 1 + max([rules.moved_link, *(tier.link for tier in rules.tiers)])
        self.channels: dict[Any, int] = {}
        self.instances: list[Instance] = []
        self.groups: list[Group] = []
        for k in range(rules.instances):
            self.instances.append(Instance(k, len(self.groups), self))
            self.groups += self.instances[-1].groups

    def serve(self) -> None:
        while any(one.last < 0 for one in self.requests):
            instance = min(self.instances, key=lambda one: (one.wake, one.number))
            if self.arrivals and min(self.arrivals)[0] <= instance.wake:
                first = min(self.arrivals)
                self.arrivals.remove(first)
                self.arrive(first[0], self.requests[first[2]])
            else:
                instance.look()

    def come(self, time: int, request: Request) -> None:
        self.arrivals.append((time, 1, request.number))

    def finish(self, request: Request) -> None:
        if request.number in self.followers:
            follower, pause = self.followers[request.number]
            self.arrivals.append((request.last + pause, 1, follower))

    def arrive(self, time: int, request: Request) -> None:
        prefills, last = self.rules.prefills, self.rules.instances
        first, last = (prefills, last) if request.is_moved else (0, prefills or last)
        among = self.instances[first:last]
        if self.rules.routing == "least":
            instance = min(among, key=lambda one: one.load)
            group = min(instance.groups, key=lambda one: one.load)
        else:
            turn = mix(request.stream, 0) >> 1
            if self.rules.routing == "turns":
                turn = self.turns[first > 0]
                self.turns[first > 0] += 1
            instance = among[turn % len(among)]
            group = instance.groups[turn // len(among) % len(instance.groups)]
        group.load += 1
        if instance.sleeps:
            instance.wake = min(instance.wake, time)
        if not request.is_moved:
            request.queued = max(time, instance.wake)
        request.state = "waiting"
        group.waiting.append(request)

    def of_tier(self, tier: int, group: Group) -> Memory:
        return self.tiers[tier][group.number // self.rules.tiers[tier].sharing]

    def tier_of(self, group: Group, content: int) -> int | None:
        for tier in range(len(self.tiers)):
            if content in self.of_tier(tier, group).found:
                return tier
        return None

    def over_link(self, link: int, group: Group, way: str, took: int, now: int) -> int:
        channel = link, group.number, way
        begin = max(self.channels.get(channel, 0), now)
        self.channels[channel] = group.beside_steps(link, begin, took)
        return self.channels[channel]

    def transfer(self, tier: int, group: Group, way: str, blocks: int, now: int) -> int:
        what = group.kind.tiers[tier]
        pace = what.store_ns if way == "write" and what.store_ns >= 0 else what.memory_ns
        memory = tier, "memory", group.number // what.sharing, way if what.duplex else "both"
        self.channels[memory] = max(self.channels.get(memory, 0), now) + round(pace * blocks)
        link = self.over_link(what.link, group, way, round(what.link_ns * blocks), now)
        return max(link, self.channels[memory]) + what.latency

    def load(self, group: Group, request: Request, found: int, loads: int, now: int) -> int:
        if request.is_moved:
            link, source = self.rules.moved_link, self.groups[request.source]
            request.link = link
            request.passed = max(
                self.over_link(link, one, way, round(one.kind.moved_ns * loads), now)
                for one, way in ((source, "write"), (group, "read"))
            )
            return request.passed
        request.source = -1
        of = [self.tier_of(group, request.content(k)) for k in range(found, found + loads)]
        ready = now
        for tier in range(len(self.tiers)):
            memory = self.of_tier(tier, group)
            for k, where in enumerate(of):
                if where == tier:
                    memory.free.move_to_end(memory.found[request.content(found + k)])
            if tier in of:
                came = self.transfer(tier, group, "read", of.count(tier), now)
                if came >= ready:
                    what = group.kind.tiers[tier]
                    request.link = what.link
                    channel = what.link, group.number, "read"
                    request.passed = self.channels[channel] + what.latency
                ready = max(ready, came)
        return ready

    def store(self, group: Group, content: int, now: int) -> None:
        for tier in range(len(self.tiers)):
            memory = self.of_tier(tier, group)
            if content in memory.found:
                memory.free.move_to_end(memory.found[content])
                return
            block, content_before = memory.take()
            memory.register(block, content)
            memory.free[block] = None
            self.transfer(tier, group, "write", 1, now)
            if not content_before:
                return
            content = content_before
