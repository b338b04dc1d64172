"""When the stages of a pipeline work, event by event, on a network that takes no time.

A stage takes what is next in its order as soon as it is free and what that needs is there. Where
chunks stand in the model is worked out here anew, from each schedule's description.
"""

from __future__ import annotations

from typing import NamedTuple

from nadi.models.llm.pipeline_schedules import StageOrder

F, B, W, BW = range(4)


class Times(NamedTuple):
    """When everything ended, how long each stage worked, and from its first to its last work."""

    makespan: int
    busy: list[int]
    spans: list[int]


def position(schedule: str, stage: int, chunk: int, p: int) -> int:
    """Give the place of a chunk among those of the model."""
    if schedule == "dualpipe":
        return [stage, p - 1 - stage][chunk]
    return chunk * p + stage


def run(
    schedule: str, orders: tuple[StageOrder, ...], durations: tuple[int, int, int],
    overlapped: int | None = None,
) -> Times:  # fmt: skip
    """Run a schedule.

    ``durations`` are those of F, B and W of a chunk. With ``overlapped``, a forward and a backward
    that overlap are one piece of work of this duration, and else one after the other.
    """
    p = len(orders)
    last = max(position(schedule, s, int(c), p) for s in range(p) for c in orders[s].chunk)
    cost = {F: durations[0], B: durations[1], W: durations[2], BW: durations[1] + durations[2]}
    works = [_works(order, overlapped is not None) for order in orders]
    for stage, pieces in enumerate(works):
        for k, of_work in enumerate(pieces):
            pieces[k] = [(f, position(schedule, stage, c, p), i) for f, c, i in of_work]
    done: dict[tuple[str, int, int], int] = {}
    free, busy = [0] * p, [0] * p
    begun: list[int] = [-1] * p
    while any(works):
        moved = False
        for stage in range(p):
            while works[stage]:
                pieces = works[stage][0]
                needed = [need for piece in pieces for need in _needs(piece, last)]
                if not all(need in done for need in needed):
                    break
                works[stage].pop(0)
                moved = True
                takes = overlapped if len(pieces) == 2 else cost[pieces[0][0]]
                assert takes is not None
                free[stage] = max([free[stage], *(done[need] for need in needed)]) + takes
                busy[stage] += takes
                begun[stage] = free[stage] - takes if begun[stage] < 0 else begun[stage]
                for phase, place, micro_batch in pieces:
                    for letter in ("F", "B", "W", "BW")[phase]:
                        key = (letter, place, micro_batch)
                        assert key not in done, f"{key} is done twice"
                        done[key] = free[stage]
        assert moved, "each stage waits for another one"
    spans = [end - begin for begin, end in zip(begun, free, strict=True)]
    return Times(max(free), busy, spans)


def _works(order: StageOrder, pairs: bool) -> list[list[tuple[int, int, int]]]:
    """Give phase, chunk and micro-batch of what starts together: one, or two that overlap."""
    works: list[list[tuple[int, int, int]]] = []
    joined = False
    for phase, chunk, micro_batch, overlaps in zip(*order, strict=True):
        piece = (int(phase), int(chunk), int(micro_batch))
        if joined:
            works[-1].append(piece)
        else:
            works.append([piece])
        joined = pairs and bool(overlaps)
    return works


def _needs(piece: tuple[int, int, int], last: int) -> list[tuple[str, int, int]]:
    """Give what must be done before a piece of work."""
    phase, place, micro_batch = piece
    if phase == F:
        return [("F", place - 1, micro_batch)] if place else []
    if phase == W:
        return [("B", place, micro_batch)]
    gradient = [("B", place + 1, micro_batch)] if place < last else []
    return [("F", place, micro_batch), *gradient]


def peak(order: StageOrder, until: tuple[int, ...]) -> int:
    """Give how many chunks' activations a stage holds at most, from F until one of some phases."""
    held = most = 0
    for phase in order.phase:
        held += int(phase == F) - int(phase in until)
        most = max(most, int(held))
    return most
