"""Draw requests, rules and times of steps, small enough for the slow reference."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from nadi.serving.engines import ROUTING, CacheTier, EngineRules, InstanceKind
from nadi.serving.requests import Requests
from nadi.serving.step_times import StepTimes


def drawn_times(random: np.random.Generator) -> StepTimes:
    """Draw times that rise with everything, at any points."""
    axes = tuple(
        np.append(0.0, np.cumsum(random.integers(1, 40, random.integers(2, 5)))).astype(float)
        for _ in range(4)
    )
    grid = sum(
        np.expand_dims(
            np.append(0.0, np.cumsum(random.uniform(1, 9, axis.size - 1))),
            [k for k in range(4) if k != place],
        )
        for place, axis in enumerate(axes)
    )
    points = np.append(1.0, 1.0 + np.cumsum(random.integers(1, 30, 4)))
    return StepTimes(
        points, np.cumsum(random.uniform(5, 50, 5)), points, np.cumsum(random.uniform(1, 5, 5)),
        axes, np.asarray(grid), bool(random.integers(2)),  # type: ignore[arg-type]
        np.asarray(grid)[:, :, 0, 0] * random.uniform(0.2, 1.0),
        np.cumsum(random.uniform(0, 30, (2, 5)) * random.integers(0, 2, (2, 1)), axis=1),
    )._replace(experts=np.cumsum(random.uniform(0, 4, (2, 5)), axis=1))  # fmt: skip


def drawn_requests(random: np.random.Generator, block: int) -> Requests:
    """Draw requests that begin alike, or follow each other, or say what others say."""
    num = int(random.integers(1, 25))
    prompt, output = random.integers(1, 60, num), random.integers(1, 40, num)
    arrival = random.integers(0, 3000, num)
    told = np.where(random.random(num) < 0.3, prompt // block, 0)
    begins = random.integers(1, 3, num)
    content = [
        7 + 2 * (10 * (begins[k] if place < 2 else 100 + k % 3) + place)
        for k in range(num) for place in range(told[k])
    ]  # fmt: skip
    follows = np.where(random.random(num) < 0.3, np.arange(num) - 1, -1)
    stream = np.arange(1, num + 1)
    for k in np.flatnonzero(follows >= 0):
        stream[k] = stream[follows[k]]
    return Requests(
        arrival, prompt, output, stream, random.integers(1000, 1003, num),
        np.where(random.random(num) < 0.5, random.integers(0, 40, num), 0),
        follows, told, np.array(content, dtype=np.int64),
    )  # fmt: skip


def drawn_rules(random: np.random.Generator, requests: Requests, block: int) -> EngineRules:
    """Draw rules under which every request has room, and few have it at once."""
    drafts = int(random.integers(0, 4)) if random.random() < 0.3 else 0
    longest = int((requests.prompt + requests.output).max()) + drafts
    instances = int(random.integers(1, 4))
    apart = instances > 1 and random.random() < 0.4
    groups = int(random.integers(1, 4)) if random.random() < 0.5 else 1
    tiers = tuple(
        CacheTier(
            f"tier {k}",
            int(random.integers(1, 30)),
            int(random.integers(1, instances * groups + 1)),
            float(random.integers(0, 20)),
            float(random.integers(0, 9)),
            int(random.integers(50)),
            bool(random.integers(2)),
            float(random.integers(-9, 9)),
            int(random.integers(2)),
        )
        for k in range(random.integers(0, 3))
    )
    least = -(-longest // block)
    reads = None
    if apart and random.random() < 0.6:
        reads = InstanceKind(
            least + int(random.integers(0, 9)),
            int(random.integers(1, 4)),
            float(random.integers(0, 30)),
            tuple(tier._replace(link_ns=float(random.integers(0, 20))) for tier in tiers),
            int(random.integers(1, 4)),
        )
    return EngineRules(
        int(random.integers(4, 80)), int(random.integers(1, 8)), block,
        least + int(random.integers(0, 20)),
        *(bool(one) for one in random.integers(0, 2, 2)), reuses=bool(random.random() < 0.8),
        instances=instances, prefills=int(random.integers(1, instances)) if apart else 0,
        stages=int(random.integers(1, 4)) if random.random() < 0.3 else 1,
        routing=ROUTING[random.integers(3)], host=int(random.integers(0, 30)), drafts=drafts,
        acceptance=float(random.random()), moved_ns=float(random.integers(0, 30)), tiers=tiers,
        moved_link=int(random.integers(2)), prefill=reads, seed=int(random.integers(100)),
        launch=int(random.integers(0, 60)),
        wait_steps=int(random.integers(1, 9)) if random.random() < 0.3 else 0,
        wait_tokens=int(random.integers(1, 80)), groups=groups,
    )  # fmt: skip


def drawn_case(seed: int) -> tuple[Requests, EngineRules, list[StepTimes]]:
    """Draw requests, rules and times; tiers need blocks that are found by their content."""
    random = np.random.default_rng(seed)
    block = int(random.integers(1, 9))
    requests = drawn_requests(random, block)
    rules = drawn_rules(random, requests, block)
    if not rules.reuses:
        rules = rules._replace(tiers=())
        if rules.prefill:
            rules = rules._replace(prefill=rules.prefill._replace(tiers=()))
    times = drawn_times(random)
    reads = times
    if rules.prefill:
        again = drawn_times(random)
        reads = times._replace(dense=again.dense, wires=again.wires, experts=again.experts)
    return requests, rules, [reads, times]


def recording_of_steps(steps: list[tuple[str, list[tuple[int, int]]]]) -> bytes:
    """Give a device trace whose steps, in us, launch kernels of given starts and lengths."""
    events: list[dict[str, Any]] = []
    call, begin = 0, 0
    for name, kernels in steps:
        span = {"ph": "X", "pid": 7, "tid": 7, "ts": begin}
        events.append({**span, "cat": "user_annotation", "name": name, "dur": 90})
        for start, duration in kernels:
            call += 1
            at = begin + 2 * call % 80 + 1
            linked = {"correlation": call, "External id": call}
            events.append({
                **span, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at, "dur": 1,
                "args": linked,
            })  # fmt: skip
            events.append({
                "ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": "gemm", "dur": duration,
                "ts": begin + 100 + start, "args": {**linked, "stream": 7, "device": 0},
            })  # fmt: skip
        begin += 10_000
    return json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()
