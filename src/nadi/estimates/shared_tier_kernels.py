"""All moves of a pipeline's stages to the second memory tier and back, followed one by one.

A stage computes in order. It loads in the order of uses, and stores in the order of writes, one
after the other. Whoever moves at the same time has the same part of the tier: so much of a
transfer is done as a clock has advanced that counts the bytes of each mover.

A layer is cut into parts, over which its operations are spread evenly; where it keeps its input
alone, parts end where that has been used, and where what leaves in the backward does, too. What it
keeps for its backward, and its weights, move with the parts that make and use them.
"""

from typing import NamedTuple

import numpy as np

from nadi.kernels.columns import Columns, column
from nadi.kernels.jit import inner, kernel

PARTS = 4  # of which it is known what they keep
_DISTANCE = 32.0  # operations before a use that its load may begin, or that a tensor stays for it
_AHEAD = _DISTANCE - 1.0  # of these, those that are left when the load begins
_EXCHANGE = 2.0  # operations with other stages between two passes
_NEAR = 1.0  # byte: a transfer that lacks less is done, as clocks are no exact numbers
_TICK = 1e-13  # of the time so far
LOAD, STORE = 0, 1


class PIPELINE(Columns, of="rows"):
    """What is known of one execution."""

    forward = column("of a layer", "s")
    backward = column("of a layer", "s")
    first_forward = column("of the embedding", "s")
    first_backward = column("of the embedding", "s")
    last_forward = column("of the head", "s")
    last_backward = column("of the head", "s")
    hop = column("of a message to another stage", "s")
    weights = column("of a layer that move, without experts", "bytes")
    experts = column("of a layer's experts, and move", "bytes")
    kept = column("by a layer's forward, and move", "bytes")
    stored_again = column("by a layer's backward, and move", "bytes")
    loaded_again = column("by a layer's backward at its end, what it stored among them", "bytes")
    rows = column("of the embedding's table that a forward looks up, and move", "bytes")
    head = column("of the head's weights that move", "bytes")
    buffers = column("of the first tier, for what moves", "bytes")
    forward_count = column("operations of a layer")
    backward_count = column("operations of a layer")
    end_count = column("operations of the head, forward and backward")
    before_forward = column("operations of a layer before the first that uses its weights")
    after_forward = column("operations of a layer from the last on that uses its weights")
    before_backward = column("operations of a layer before the first that uses its weights")
    after_backward = column("operations of a layer from the last on that uses its weights")
    experts_before_forward = column("operations of a layer before the first that uses experts")
    experts_after_forward = column("operations of a layer from the last on that uses experts")
    experts_before_backward = column("operations of a layer before the first that uses experts")
    experts_after_backward = column("operations of a layer from the last on that uses experts")
    forward_work = column("computations of a layer")
    backward_work = column("computations of a layer")
    end_work = column("computations of the head, forward and backward")
    is_whole = column("whether a layer keeps its input alone, and computes the rest again")
    late = column("share of a layer's weights that the second half of its forward uses")
    until_quarter = column("share of kept bytes after a quarter of a layer's forward")
    until_half = column("share of kept bytes after half of a layer's forward")
    until_three_quarters = column("share of kept bytes after three quarters of a layer's forward")
    # of a forward whose backward computes all again, and of this one
    used = column("share of a forward's operations until its input has been used")
    left = column("share of a backward's operations until what leaves in it has been used")
    back = column("share of a backward's operations until that is used again")
    used_seconds = column("share of a forward's seconds until its input has been used")
    left_seconds = column("share of a backward's seconds until what leaves in it has been used")
    back_seconds = column("share of a backward's seconds until that is used again")
    state = column("of a layer's optimizer that moves", "bytes")
    first_state = column("of the embedding's", "bytes")
    last_state = column("of the head's", "bytes")
    sharing = column("how many stages share a tier")


class UNIT(Columns, of="units"):
    """A part of a layer, or an end of the model, in one pass of a stage."""

    seconds = column("of its computation", "s")
    load = column("that it needs", "bytes")
    store = column("that it leaves", "bytes")
    before = column("computations before it")
    turn = column("operations before the one that makes what it leaves")
    begin = column("of its computation, infinite before", "s")
    stored = column("where it is timed: when all that is left until then is stored", "s")


class LINK(Columns, of="links"):
    """What units wait for."""

    receives = column("the pass that begins with it, or -1")
    sends = column("the pass that ends with it, or -1")
    stored = column("the unit that leaves what it loads, or -1")


class AT(Columns, of="at"):
    """Where a stage is: units."""

    compute = column("that is computed, or the next")
    load = column("that is loaded, or the next")
    store = column("that is stored, or the next")
    seen = column("after whose begin the next load may begin")
    ending = column("with which its last pass begins")
    last = column("its last one: the update, which only loads")


class STAGE(Columns, of="stage"):
    """What a stage does."""

    until = column("end of its computation, infinite without", "s")
    loaded = column("clock at the end of its load, infinite without", "bytes")
    stored = column("clock at the end of its store, infinite without", "bytes")
    due = column("when it may begin something, or ends its computation", "s")
    held = column("in buffers until they are stored", "bytes")
    now = column("where it is followed alone: how far", "s")
    passed = column("where it is followed alone: end of its passes", "s")


class SLICE(Columns, of="shares"):
    """What a part of a layer's pass takes of the layer."""

    weights = column("share of weights that it is the first to use")
    experts = column("share of experts that it is the first to use")
    kept = column("share of what a forward keeps, that it makes or uses")
    begin = column("share of operations before it")
    seconds = column("share of seconds")


class Schedule(NamedTuple):
    """What is the same for all executions.

    - ``passes``: int64, shape (passes, 3): 0 for a forward and 1 for a backward, the position of
      the layers in the model, and the micro-batch; in the order of each stage.
    - ``first``: int64, shape (stages + 1,): the first pass of each stage.
    - ``cuts``: int64, shape (positions,): layers at each position.
    """

    passes: np.ndarray
    first: np.ndarray
    cuts: np.ndarray


class Work(NamedTuple):
    """What is written while executions are followed."""

    units: np.ndarray  # float64, columns UNIT
    shares: np.ndarray  # float64, shape (2, PARTS, SLICE): of parts of forwards and backwards
    links: np.ndarray  # int64, columns LINK
    begun: np.ndarray  # int64, shape (positions, micro-batches): first unit of a forward's layers
    used: np.ndarray  # float64, shape (2, positions, layers): operations before the last use of
    # weights, and of those of experts
    at: np.ndarray  # int64, shape (stages, AT)
    stage: np.ndarray  # float64, shape (stages, STAGE)
    arrived: np.ndarray  # float64, shape (2, positions, micro-batches): when input is there
    clock: np.ndarray  # float64, shape (stages, 2): of each group's loads and stores
    movers: np.ndarray  # int64, shape (stages, 2): how many of a group load and store


@inner
def _put(work: Work, unit: int, seconds: float, load: float, before: float) -> int:
    """Add a unit that leaves nothing; return the number of the next."""
    row = work.units[unit]
    row[UNIT.seconds], row[UNIT.load], row[UNIT.store] = seconds, load, 0.0
    row[UNIT.before], row[UNIT.turn], row[UNIT.begin] = before, 0.0, np.inf
    work.links[unit, :] = -1
    return unit + 1


@inner
def _used_until(row: np.ndarray, way: int, done: float) -> float:
    """Return the share of a layer's weights that a share of one of its passes uses."""
    if way == 1 and row[PIPELINE.is_whole] > 0:
        return _used_until_of_forward(
            row, min(done * row[PIPELINE.backward_work] / row[PIPELINE.forward_work], 1.0)
        )
    if way == 1:
        return 1.0 - _used_until_of_forward(row, 1.0 - done)
    return _used_until_of_forward(row, done)


@inner
def _used_until_of_forward(row: np.ndarray, done: float) -> float:
    late = float(row[PIPELINE.late])
    return 2.0 * done * (1.0 - late) if done < 0.5 else 1.0 - late + (2.0 * done - 1.0) * late


@inner
def _kept(row: np.ndarray, part: int) -> float:
    """Return the share of what a layer's forward keeps that a part of it does."""
    until = 1.0 if part == PARTS - 1 else row[PIPELINE.until_quarter + part]
    return float(until - (row[PIPELINE.until_quarter + part - 1] if part else 0.0))


@inner
def _experts_until(row: np.ndarray, way: int, done: float) -> float:
    """Return the share of a layer's experts that a share of one of its passes uses."""
    count = row[PIPELINE.forward_count + way]
    # a backward that computes the forward again uses them there first
    of = 0 if row[PIPELINE.is_whole] > 0 else 2 * way
    length = row[PIPELINE.forward_count] if of == 0 else count
    first = row[PIPELINE.experts_before_forward + of]
    last = length - row[PIPELINE.experts_after_forward + of] + 1.0
    return float(min(max((done * count - first) / max(last - first, 1.0), 0.0), 1.0))


@inner
def _until(row: np.ndarray, way: int, part: int, of: int) -> float:
    """Return the share of a layer's pass before a part; ``of`` operations (0) or seconds (3).

    Where a backward computes all again, first parts store what leaves, and last ones load it.
    """
    if row[PIPELINE.is_whole] <= 0 or part == 0 or part == PARTS:
        return part / PARTS
    if way == 0:
        used = row[PIPELINE.used + of]
        return float(used + (1.0 - used) * (part - 1) / (PARTS - 1))
    left, back = row[PIPELINE.left + of], row[PIPELINE.back + of]
    return float(left + (back - left) * (part - 1) / (PARTS - 2))


@inner
def _put_shares(work: Work, row: np.ndarray) -> None:
    """Note what parts take of a layer, which is the same for all layers and passes."""
    for way in range(2):
        for part in range(PARTS):
            share = work.shares[way, part]
            begin, end = _until(row, way, part, 0), _until(row, way, part + 1, 0)
            share[SLICE.begin] = begin
            share[SLICE.seconds] = _until(row, way, part + 1, 3) - _until(row, way, part, 3)
            share[SLICE.weights] = _used_until(row, way, end) - _used_until(row, way, begin)
            share[SLICE.experts] = _experts_until(row, way, end) - _experts_until(row, way, begin)
            # what is kept last is used first
            share[SLICE.kept] = _kept(row, part if way == 0 else PARTS - 1 - part)


@inner
def _stays(
    row: np.ndarray, way: int, at: tuple[float, float], last_use: np.ndarray, of: int
) -> bool:  # fmt: skip
    """Tell whether a layer's weights stay from the pass before, and note their last use.

    - ``at``: Operations of the stage before the layer, and those that count since the last use.
    - ``of``: 0 for weights, and 1 for those of experts.
    """
    before = PIPELINE.before_forward + 4 * of + 2 * way
    after = PIPELINE.after_forward + 4 * of + 2 * way
    stays = at[1] + row[before] - last_use[of] <= _DISTANCE
    last_use[of] = at[0] + row[PIPELINE.forward_count + way] - row[after]
    return bool(stays)


@inner
def _put_layer(
    work: Work, unit: int, row: np.ndarray, one: tuple[int, int, int], layer: int,
    done: tuple[float, float, bool],
) -> int:  # fmt: skip
    """Add a layer of a pass; return the number of the next unit.

    - ``one``: The pass.
    - ``done``: Operations and computations of the stage before it, and whether one of these
      operations is a message that arrives before the uses of the layer in the pass before.
    """
    way, position, micro_batch = one
    turn, worked, is_there = done
    count = row[PIPELINE.forward_count + way]
    early = turn - (1.0 if is_there else 0.0)
    last_use = work.used[:, position, layer]
    weights = 0.0 if _stays(row, way, (turn, early), last_use, 0) else row[PIPELINE.weights]
    experts = 0.0 if _stays(row, way, (turn, early), last_use, 1) else row[PIPELINE.experts]
    is_whole = row[PIPELINE.is_whole] > 0
    forward = work.begun[position, micro_batch] + layer * PARTS
    for part in range(PARTS):
        here, share = unit, work.shares[way, part]
        unit = _put(
            work, unit, row[PIPELINE.forward + way] * share[SLICE.seconds],
            weights * share[SLICE.weights] + experts * share[SLICE.experts],
            worked + row[PIPELINE.forward_work + way] * share[SLICE.begin],
        )  # fmt: skip
        if way == 1 and part == 0:
            work.units[here, UNIT.store] = row[PIPELINE.stored_again]
        if way == 1 and part == PARTS - 1 and row[PIPELINE.loaded_again] > 0:
            work.units[here, UNIT.load] += row[PIPELINE.loaded_again]
            work.links[here, LINK.stored] = here - part
        if row[PIPELINE.kept] <= 0 or (is_whole and part > 0):
            continue
        now = turn + (0.0 if is_whole else (part + 0.5) * count / PARTS)
        kept = row[PIPELINE.kept] * (1.0 if is_whole else share[SLICE.kept])
        if way == 0:
            work.units[here, UNIT.store] = kept
            work.units[here, UNIT.turn] = now + 1.0  # the next operation uses it, too
            continue
        made = forward if is_whole else forward + PARTS - 1 - part
        if now - work.units[made, UNIT.turn] <= _DISTANCE:
            work.units[made, UNIT.store] = 0.0
        else:
            work.units[here, UNIT.load] += kept
            work.links[here, LINK.stored] = made
    return unit


@inner
def _put_stage(schedule: Schedule, work: Work, row: np.ndarray, stage: int, unit: int) -> int:
    """Add the units of a stage; return the number of the next."""
    last = schedule.cuts.size - 1
    turn, before, state = 0.0, 0.0, 0.0
    work.used[:] = -np.inf
    for number in range(schedule.first[stage], schedule.first[stage + 1]):
        way, position = schedule.passes[number, 0], schedule.passes[number, 1]
        micro_batch = schedule.passes[number, 2]
        begin, layers = unit, schedule.cuts[position]
        ends = position == (0 if way == 0 else last), position == (last if way == 0 else 0)
        turn += _EXCHANGE
        # Other stages wait while the last one is at the head: so long before the end of a backward
        # the next activations arrive. Their message then is no operation after those before.
        early = row[PIPELINE.last_forward] + row[PIPELINE.last_backward] - 2.0 * row[PIPELINE.hop]
        follows = number > schedule.first[stage] and schedule.passes[number - 1, 0] == 1
        if way == 1 or ends[0] or not follows:
            early = -1.0
        if ends[0] and way == 0:
            unit = _put(work, unit, row[PIPELINE.first_forward], row[PIPELINE.rows], before)
            before += 1.0
        elif ends[0]:
            unit = _put(work, unit, row[PIPELINE.last_backward], 0.0, before)
            turn += row[PIPELINE.end_count] - _EXCHANGE
            before += row[PIPELINE.end_work] / 2.0
        if way == 0:
            work.begun[position, micro_batch] = unit
        for k in range(layers):
            layer = k if way == 0 else layers - 1 - k
            one = way, position, micro_batch
            is_there = early >= layer * row[PIPELINE.backward]
            unit = _put_layer(work, unit, row, one, layer, (turn, before, is_there))
            turn += row[PIPELINE.forward_count + way]
            before += row[PIPELINE.forward_work + way]
        if ends[1] and way == 0:
            unit = _put(work, unit, row[PIPELINE.last_forward], row[PIPELINE.head], before)
            before += row[PIPELINE.end_work] / 2.0
        elif ends[1]:
            unit = _put(work, unit, row[PIPELINE.first_backward], 0.0, before)
            before += 1.0
        if micro_batch == 0 and way == 0:
            state += layers * row[PIPELINE.state]
            state += row[PIPELINE.first_state] if ends[0] else 0.0
            state += row[PIPELINE.last_state] if ends[1] else 0.0
        work.links[begin, LINK.receives] = number
        work.links[unit - 1, LINK.sends] = number
        work.at[stage, AT.ending] = begin
    work.at[stage, AT.last] = unit
    return _put(work, unit, 0.0, min(state, row[PIPELINE.buffers]), before)


@inner
def _may_load(work: Work, stage: int) -> float:
    """Return when the next load of a stage may begin; infinite if that is not known yet."""
    at = work.at[stage]
    unit = at[AT.load]
    stored = work.links[unit, LINK.stored]
    if stored >= at[AT.store] and stored >= 0:
        return np.inf
    return _near(work, stage, unit)


@inner
def _near(work: Work, stage: int, unit: int) -> float:
    """Return when a stage is so near a unit that it may load; infinite if it has not begun that."""
    at, units = work.at[stage], work.units
    wanted = units[unit, UNIT.before] - _AHEAD
    if wanted <= 0:
        return 0.0
    while at[AT.seen] < at[AT.last] and units[at[AT.seen] + 1, UNIT.before] <= wanted:
        at[AT.seen] += 1
    seen = at[AT.seen]
    work_of_unit = units[seen + 1, UNIT.before] - units[seen, UNIT.before]
    share = min((wanted - units[seen, UNIT.before]) / max(work_of_unit, 1e-9), 1.0)
    return float(units[seen, UNIT.begin] + share * units[seen, UNIT.seconds])


@inner
def _may_compute(schedule: Schedule, work: Work, row: np.ndarray, stage: int) -> float:
    """Return when the next unit of a stage may be computed; infinite if that is not known yet."""
    at = work.at[stage]
    unit = at[AT.compute]
    held = work.stage[stage, STAGE.held]
    full = held > 0 and held + work.units[unit, UNIT.store] > row[PIPELINE.buffers]
    if at[AT.load] <= unit or full:
        return np.inf
    number = work.links[unit, LINK.receives]
    if number < 0:
        return 0.0
    one = schedule.passes[number]
    return float(work.arrived[one[0], one[1], one[2]])


@inner
def _begin(schedule: Schedule, work: Work, row: np.ndarray, stage: int, now: float) -> float:
    """Begin what a stage can begin; return when something can begin, or its computation ends."""
    at, doing, units = work.at[stage], work.stage[stage], work.units
    group = stage // int(row[PIPELINE.sharing])
    found = np.inf
    if doing[STAGE.until] == np.inf and at[AT.compute] <= at[AT.last]:
        may = _may_compute(schedule, work, row, stage)
        if may <= now:
            units[at[AT.compute], UNIT.begin] = now
            doing[STAGE.until] = now + units[at[AT.compute], UNIT.seconds]
        else:
            found = may
    if doing[STAGE.loaded] == np.inf and at[AT.load] <= at[AT.last]:
        may = _may_load(work, stage)
        if may <= now:
            doing[STAGE.loaded] = work.clock[group, LOAD] + units[at[AT.load], UNIT.load]
            work.movers[group, LOAD] += 1
        else:
            found = min(found, may)
    if doing[STAGE.stored] == np.inf and at[AT.store] < at[AT.compute]:
        doing[STAGE.stored] = work.clock[group, STORE] + units[at[AT.store], UNIT.store]
        work.movers[group, STORE] += 1
    return min(found, float(doing[STAGE.until]))


@inner
def _skip(work: Work, stage: int) -> None:
    """Pass over what has nothing to load, and what leaves nothing."""
    at = work.at[stage]
    while at[AT.load] <= at[AT.last] and work.units[at[AT.load], UNIT.load] <= 0:
        at[AT.load] += 1
    while at[AT.store] < at[AT.compute] and work.units[at[AT.store], UNIT.store] <= 0:
        at[AT.store] += 1


@inner
def _send(schedule: Schedule, work: Work, row: np.ndarray, number: int, now: float) -> None:
    """Give the output of a pass to the one that waits for it."""
    one = schedule.passes[number]
    way, position, micro_batch = one[0], one[1], one[2]
    if way == 0 and position == schedule.cuts.size - 1:
        work.arrived[1, position, micro_batch] = now
        return
    position += 1 if way == 0 else -1
    if position >= 0:
        work.arrived[way, position, micro_batch] = now + row[PIPELINE.hop]
        work.stage[position % work.at.shape[0], STAGE.due] = now


@inner
def _end(schedule: Schedule, work: Work, row: np.ndarray, stage: int, now: float) -> None:
    """End what a stage has done by now."""
    at, doing = work.at[stage], work.stage[stage]
    group = stage // int(row[PIPELINE.sharing])
    is_loaded = work.clock[group, LOAD] >= doing[STAGE.loaded] - _NEAR
    is_stored = work.clock[group, STORE] >= doing[STAGE.stored] - _NEAR
    if not (is_loaded or is_stored or doing[STAGE.until] <= now):
        return
    if is_loaded:
        doing[STAGE.loaded] = np.inf
        work.movers[group, LOAD] -= 1
        at[AT.load] += 1
    if is_stored:
        doing[STAGE.stored] = np.inf
        doing[STAGE.held] -= work.units[at[AT.store], UNIT.store]
        work.movers[group, STORE] -= 1
        at[AT.store] += 1
    if doing[STAGE.until] <= now:
        doing[STAGE.until] = np.inf
        doing[STAGE.held] += work.units[at[AT.compute], UNIT.store]
        number = work.links[at[AT.compute], LINK.sends]
        if number >= 0:
            _send(schedule, work, row, number, now)
        at[AT.compute] += 1
    doing[STAGE.due] = now
    _skip(work, stage)


@inner
def _movers(work: Work, group: int, way: int, is_duplex: bool) -> int:
    """Return how many share what a transfer has."""
    return int(work.movers[group, way] + (0 if is_duplex else work.movers[group, 1 - way]))


@inner
def _next(
    work: Work, row: np.ndarray, seconds: np.ndarray, is_duplex: bool, at: tuple[float, float],
    stages: tuple[int, int],
) -> float:  # fmt: skip
    """Advance the clocks of stages to their next event; return its moment.

    - ``at``: When it is at the latest, and now.
    - ``stages``: The first one, and the one after the last: whole groups.
    """
    found, now = at
    sharing = int(row[PIPELINE.sharing])
    for stage in range(stages[0], stages[1]):
        group = stage // sharing
        for way in range(2):
            until = work.stage[stage, STAGE.loaded + way]
            if until < np.inf:
                each = seconds[_movers(work, group, way, is_duplex) - 1, way]
                found = min(found, now + (until - work.clock[group, way]) * each)
    # however short it is, a clock goes on
    passed = found - now + _TICK * (1.0 + now)
    for group in range(stages[0] // sharing, (stages[1] - 1) // sharing + 1):
        for way in range(2):
            if work.movers[group, way]:
                each = seconds[_movers(work, group, way, is_duplex) - 1, way]
                work.clock[group, way] += passed / each
    return found


@inner
def _last_passes(work: Work) -> float:
    """Return how long the last passes of all stages take."""
    found = 0.0
    for stage in range(work.at.shape[0]):
        at = work.at[stage]
        end = work.units[at[AT.last] - 1]
        found += end[UNIT.begin] + end[UNIT.seconds] - work.units[at[AT.ending], UNIT.begin]
    return found


@inner
def _begin_all(schedule: Schedule, work: Work, row: np.ndarray) -> None:
    """Put the units of all stages, of which nothing has begun."""
    stages = schedule.first.size - 1
    unit = 0
    _put_shares(work, row)
    for stage in range(stages):
        work.at[stage, :] = unit
        unit = _put_stage(schedule, work, row, stage, unit)
        work.stage[stage, :] = np.inf
        work.stage[stage, STAGE.due :] = 0.0
    work.arrived[:] = np.inf
    for micro_batch in range(work.arrived.shape[2]):
        work.arrived[0, 0, micro_batch] = 0.0
    work.clock[:] = 0.0
    work.movers[:] = 0
    for stage in range(stages):
        _skip(work, stage)


@inner
def _waits_for_message(schedule: Schedule, work: Work, row: np.ndarray, stage: int) -> bool:
    """Tell whether all that a stage lacks to compute is a message of which nothing is known yet."""
    at = work.at[stage]
    unit = at[AT.compute]
    if work.stage[stage, STAGE.until] < np.inf or unit > at[AT.last] or at[AT.load] <= unit:
        return False
    held = work.stage[stage, STAGE.held]
    if held > 0 and held + work.units[unit, UNIT.store] > row[PIPELINE.buffers]:
        return False
    return _may_compute(schedule, work, row, stage) == np.inf


@inner
def _follow_each(
    schedule: Schedule, work: Work, row: np.ndarray, seconds: np.ndarray, is_duplex: bool
) -> tuple[float, float, float]:
    """Follow stages with tiers of their own, each as far as the messages that it has allow.

    Only messages join them, so that no stage has to look at the events of the others.
    """
    stages = schedule.first.size - 1
    ended, goes_on = 0, True
    while ended < stages:
        if not goes_on:
            return np.nan, np.nan, np.nan
        ended, goes_on = 0, False
        for stage in range(stages):
            at, doing = work.at[stage], work.stage[stage]
            while at[AT.compute] < at[AT.last] or at[AT.load] <= at[AT.last]:
                due = _begin(schedule, work, row, stage, doing[STAGE.now])
                if _waits_for_message(schedule, work, row, stage):
                    break
                now = _next(
                    work, row, seconds, is_duplex, (due, doing[STAGE.now]), (stage, stage + 1)
                )
                if now == np.inf:
                    return np.nan, np.nan, np.nan
                goes_on, computes = True, at[AT.compute] < at[AT.last]
                doing[STAGE.now] = now
                _end(schedule, work, row, stage, now)
                if computes and at[AT.compute] >= at[AT.last]:
                    doing[STAGE.passed] = now
            if at[AT.compute] >= at[AT.last] and at[AT.load] > at[AT.last]:
                ended += 1
    passed, until = 0.0, 0.0
    for stage in range(stages):
        passed = max(passed, float(work.stage[stage, STAGE.passed]))
        until = max(until, float(work.stage[stage, STAGE.now]))
    return passed, until, _last_passes(work)


@inner
def _load_timed(work: Work, stage: int, unit: int, each: float) -> float:
    """Load what a unit of a stage needs, in so many seconds a byte; return when it is there."""
    doing, stored = work.stage[stage], work.links[unit, LINK.stored]
    begin = max(doing[STAGE.loaded], _near(work, stage, unit))
    if stored >= 0:
        begin = max(begin, work.units[stored, UNIT.stored])
    doing[STAGE.loaded] = begin + work.units[unit, UNIT.load] * each
    return float(doing[STAGE.loaded])


@inner
def _time_stage(
    schedule: Schedule, work: Work, row: np.ndarray, each: np.ndarray, stage: int
) -> None:  # fmt: skip
    """Time the units of a stage, as far as the messages that it has allow."""
    at, doing, units = work.at[stage], work.stage[stage], work.units
    while at[AT.compute] < at[AT.last]:
        unit = at[AT.compute]
        begin = float(doing[STAGE.now])
        if work.links[unit, LINK.receives] >= 0:
            one = schedule.passes[work.links[unit, LINK.receives]]
            begin = max(begin, work.arrived[one[0], one[1], one[2]])
            if begin == np.inf:
                return
        if units[unit, UNIT.load] > 0:
            begin = max(begin, _load_timed(work, stage, unit, each[LOAD]))
        left = units[unit, UNIT.store]
        while at[AT.store] < unit and (
            units[at[AT.store], UNIT.stored] <= begin
            or (doing[STAGE.held] > 0 and doing[STAGE.held] + left > row[PIPELINE.buffers])
        ):
            begin = max(begin, units[at[AT.store], UNIT.stored])
            doing[STAGE.held] -= units[at[AT.store], UNIT.store]
            at[AT.store] += 1
        if at[AT.store] == unit:
            doing[STAGE.held] = 0.0  # sums of what came and went are no exact numbers
        units[unit, UNIT.begin] = begin
        doing[STAGE.now] = begin + units[unit, UNIT.seconds]
        doing[STAGE.stored] = max(doing[STAGE.stored], doing[STAGE.now]) + left * each[STORE]
        units[unit, UNIT.stored] = doing[STAGE.stored]
        doing[STAGE.held] += left
        if work.links[unit, LINK.sends] >= 0:
            _send(schedule, work, row, work.links[unit, LINK.sends], float(doing[STAGE.now]))
        at[AT.compute] += 1


@inner
def _time_each(
    schedule: Schedule, work: Work, row: np.ndarray, each: np.ndarray
) -> tuple[float, float, float]:  # fmt: skip
    """Follow stages with tiers of their own that load and store at once, unit by unit.

    Nothing else changes the rate of a move, so that its end is known when it begins.

    - ``each``: Seconds of a byte that is loaded, and stored.
    """
    stages = schedule.first.size - 1
    for stage in range(stages):
        work.stage[stage, :] = 0.0
    timed, before = 0, -1
    while timed > before:
        before, timed, ended = timed, 0, 0
        for stage in range(stages):
            _time_stage(schedule, work, row, each, stage)
            timed += work.at[stage, AT.compute]
            ended += 1 if work.at[stage, AT.compute] == work.at[stage, AT.last] else 0
    if ended < stages:
        return np.nan, np.nan, np.nan
    passed, until = 0.0, 0.0
    for stage in range(stages):
        passed = max(passed, float(work.stage[stage, STAGE.now]))
        last = work.at[stage, AT.last]
        if work.units[last, UNIT.load] > 0:
            until = max(until, _load_timed(work, stage, last, each[LOAD]))
    return passed, max(until, passed), _last_passes(work)


@inner
def _follow(
    schedule: Schedule, work: Work, row: np.ndarray, seconds: np.ndarray, is_duplex: bool
) -> tuple[float, float, float]:
    """Follow one execution; return what ``follow_pipelines`` finds."""
    stages = schedule.first.size - 1
    _begin_all(schedule, work, row)
    if row[PIPELINE.sharing] <= 1.0 and is_duplex:
        return _time_each(schedule, work, row, seconds[0])
    if row[PIPELINE.sharing] <= 1.0:
        return _follow_each(schedule, work, row, seconds, is_duplex)
    now, passed = 0.0, 0.0
    while True:
        found, computes, all_done = np.inf, False, True
        for stage in range(stages):
            # what a stage can begin changes with what it ends, and with messages
            if work.stage[stage, STAGE.due] <= now:
                work.stage[stage, STAGE.due] = _begin(schedule, work, row, stage, now)
            found = min(found, float(work.stage[stage, STAGE.due]))
            computes |= work.at[stage, AT.compute] < work.at[stage, AT.last]
            all_done &= work.at[stage, AT.load] > work.at[stage, AT.last]
        if computes:
            passed = np.inf
        elif passed == np.inf:
            passed = now
        if all_done and not computes:
            return passed, now, _last_passes(work)
        now = _next(work, row, seconds, is_duplex, (found, now), (0, stages))
        if now == np.inf:
            return np.nan, np.nan, np.nan
        for stage in range(stages):
            _end(schedule, work, row, stage, now)


@kernel
def follow_pipelines(
    schedule: Schedule, work: Work, rows: np.ndarray, seconds: np.ndarray, is_duplex: int,
    found: np.ndarray,
) -> None:  # fmt: skip
    """Follow executions of one schedule. O(executions x units x stages).

    - ``rows``: float64, shape (executions, PIPELINE).
    - ``seconds``: float64, shape (executions, stages, 2): of a byte that is loaded, and stored,
      while so many stages move some, from one on.
    - ``is_duplex``: Whether loads leave stores their bandwidth.
    - ``found``: float64, shape (executions, 3), filled: seconds until all passes are done, until
      what the update reads first is loaded, too, and of the last passes of all stages.
    """
    for number in range(rows.shape[0]):
        ends = _follow(schedule, work, rows[number], seconds[number], is_duplex > 0)
        found[number, 0], found[number, 1], found[number, 2] = ends


@kernel
def count_moves(schedule: Schedule, work: Work, rows: np.ndarray, found: np.ndarray) -> None:
    """Count the bytes that the passes of executions of one schedule move. O(executions x units).

    - ``rows``: float64, shape (executions, PIPELINE).
    - ``found``: float64, shape (executions, stages, 2), filled: bytes that are loaded, and stored.
    """
    for number in range(rows.shape[0]):
        unit = 0
        _put_shares(work, rows[number])
        for stage in range(schedule.first.size - 1):
            begin = unit
            unit = _put_stage(schedule, work, rows[number], stage, unit)
            found[number, stage, :] = 0.0
            for one in range(begin, unit - 1):  # the last one is of the update
                found[number, stage, LOAD] += work.units[one, UNIT.load]
                found[number, stage, STORE] += work.units[one, UNIT.store]
