"""Learn a generator from jobs and their conditions."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from nadi.errors import InputError
from nadi.sharing.conditional.conditional_model import (
    Body,
    ConditionalModel,
    Fit,
    OperationTemplate,
    Relation,
)
from nadi.sharing.conditional.decision_trees import DecisionTree, grow
from nadi.sharing.conditional.size_laws import Law, LawFinder
from nadi.sharing.conditional.stage_programs import (
    LAYER,
    OperationKey,
    StageProgram,
    read_stage,
    visit_facts,
)
from nadi.sharing.conditional.stage_values import (
    Conditions,
    StageValues,
    values_of_stages,
    with_usual,
)
from nadi.trace.trace import Job, Trace

_NEAR = 1e-3
FIRST_OF_VISIT = -2
"""In place of a template: the first operation on a stream in the visit before, of one segment."""
_NAMES = ("flops", "bytes", "comm_bytes")
_Place = tuple[str, int]
_Facts = tuple[tuple[str, float], ...]
_SizeLaws = tuple[Law | None, Law | None, Law | None, tuple[Law, ...]]


class _Instance(NamedTuple):
    """What one visit of a stage is, as all with the same facts are.

    Attributes
    ----------
    case
        Of the stage, among all.
    facts
        Of the stage and the visit.
    keys
        The operations.
    rows
        Where they stand in the program of the stage.
    """

    case: int
    facts: dict[str, float]
    keys: tuple[OperationKey, ...]
    rows: range


def generator_of_jobs(
    jobs: Iterable[tuple[Job | Sequence[Trace], Mapping[str, int | str | bool], str]],
) -> ConditionalModel:
    """Learn a generator.

    - ``jobs``: Each with its conditions, and what to call it in messages.
    - Raises InputError if there is no job, conditions are missing, or a job is none of layers and
      micro-batches.
    """
    conditions: list[Conditions] = []
    programs: list[StageProgram] = []
    for job, given, where in jobs:
        known = with_usual(given, where)
        programs += [read_stage(job, known, values, where) for values in values_of_stages(known)]
        conditions.append(known)
    if not conditions:
        raise InputError("jobs", "there are none to learn from", "give at least one job")
    learner = _Learner(programs)
    return learner.model(conditions)


class _Learner:
    """What is found in the programs of all stages."""

    def __init__(self, programs: Sequence[StageProgram]) -> None:
        self.programs = programs
        self.visits: dict[_Place, list[_Instance]] = defaultdict(list)
        self.climbs: dict[str, Counter[bool]] = defaultdict(Counter)
        for case, program in enumerate(programs):
            self._add(case, program)
        sequences = {place: [one.keys for one in own] for place, own in self.visits.items()}
        elsewhere: Counter[tuple[str, str]] = Counter()
        for keys in {keys for own in sequences.values() for keys in own}:
            elsewhere.update(combinations([key.name for key in keys], 2))
        self.bodies = {place: _merged(own, elsewhere) for place, own in sequences.items()}
        every = [key for keys in self.bodies.values() for key in keys]
        self.number = {key: place for place, key in enumerate(every)}
        self.rows = self._first_rows()

    def _add(self, case: int, program: StageProgram) -> None:
        known: set[tuple[_Place, _Facts]] = set()
        before: dict[int, int] = {}
        for visit in program.visits:
            segment = program.segments[visit.segment]
            if visit.slot == LAYER:
                if visit.segment in before:
                    self.climbs[segment.kind][visit.layer > before[visit.segment]] += 1
                before[visit.segment] = visit.layer
            place = segment.kind, visit.slot
            own = visit_facts(segment, visit.slot, visit.layer, program.values)
            if (place, own) in known:
                continue
            known.add((place, own))
            keys = tuple(program.keys[row] for row in visit.rows)
            facts = program.values.facts | dict(own)
            self.visits[place].append(_Instance(case, facts, keys, visit.rows))
        self._add_empty(case, program, known)

    def _add_empty(
        self, case: int, program: StageProgram, known: set[tuple[_Place, _Facts]]
    ) -> None:
        """Add that nothing is before or after the layers of segments where this is so."""
        for segment in dict.fromkeys(program.segments):
            for slot in (0, 1, 2):
                layers = program.values.layers if slot == LAYER else range(-1, 0)
                for layer in layers:
                    own = visit_facts(segment, slot, layer, program.values)
                    if ((segment.kind, slot), own) not in known:
                        known.add(((segment.kind, slot), own))
                        facts = program.values.facts | dict(own)
                        self.visits[segment.kind, slot].append(_Instance(case, facts, (), range(0)))

    def _first_rows(self) -> dict[OperationKey, dict[int, int]]:
        """Return for each template the first row of each stage that has it."""
        found: dict[OperationKey, dict[int, int]] = {key: {} for key in self.number}
        for case, program in enumerate(self.programs):
            for row, key in enumerate(program.keys):
                found[key].setdefault(case, row)
        return found

    def model(self, conditions: list[Conditions]) -> ConditionalModel:
        """Return the generator."""
        laws = _Laws(self.programs)
        waits = self._waits()
        made: dict[OperationKey, OperationTemplate] = {}
        matters: dict[tuple[str, ...], set[str]] = defaultdict(set)
        # those of most stages first, so that their laws are known to those of few; and those of
        # layers before those of stages, which are sums of them
        often = sorted(self.number, key=lambda one: -len(self.rows[one]))
        sizes = {
            key: laws.of(self.rows[key]) for key in sorted(often, key=lambda one: one.slot != LAYER)
        }
        for key in often:
            own = self.visits[key.kind, key.slot]
            answers = [key in one.keys for one in own]
            others = (key.kind, key.phase), (key.name,)
            near = set().union(*(matters[one] for one in others))
            present = presence([one.facts for one in own], answers, near)
            for twin in made:
                if key == twin._replace(of_experts=True, stream=key.stream):
                    beside = within(made[twin].present, [one.facts for one in own], answers)
                    present = beside or present
            for one in others:
                matters[one] |= present.facts
            made[key] = self._template(key, present, waits.get(key, ()), sizes[key])
        templates = [made[key] for key in self.number]
        kinds = tuple(dict.fromkeys(kind for kind, _ in self.bodies))
        batched = {one.kind: one.micro_batch >= 0 for p in self.programs for one in p.segments}
        places = {
            place: tuple(self.number[key] for key in keys) for place, keys in self.bodies.items()
        }
        order, alike = _schedule(self.programs, kinds)
        return ConditionalModel(
            tuple(templates), tuple(Body(*place, own) for place, own in places.items()), kinds,
            tuple(self.climbs[kind][True] >= self.climbs[kind][False] for kind in kinds),
            tuple(batched[kind] for kind in kinds), order, tuple(conditions),
            Fit(len(self.programs), self._alike(templates, alike), laws.found, laws.alike),
        )  # fmt: skip

    def _template(
        self, key: OperationKey, present: DecisionTree, waits: tuple[Relation, ...],
        sizes: _SizeLaws,
    ) -> OperationTemplate:  # fmt: skip
        rows = self.rows[key]
        ways = frozenset.intersection(
            *(self.programs[case].ways[row] for case, row in rows.items())
        )
        if not ways and any(self.programs[case].ways[row] for case, row in rows.items()):
            what = f"the process groups of {key.name} lie along other axes in other jobs"
            raise InputError("jobs", what, "learn from jobs of one kind")
        way = min(ways, key=lambda one: (len(re.split("[+ ]", one)), one), default="")
        peers = {int(self.programs[case].peers[row]) for case, row in rows.items()}
        return OperationTemplate(key, present, waits, *sizes, way=way, peer=min(peers, key=abs))

    def _alike(self, templates: Sequence[OperationTemplate], schedules: Sequence[bool]) -> int:
        """Count the stages whose segments and visits all come back."""
        wrong = {case for case, fits in enumerate(schedules) if not fits}
        for place, own in self.visits.items():
            order = [templates[self.number[key]] for key in self.bodies[place]]
            for one in own:
                made = tuple(t.key for t in order if t.present.decide(one.facts))
                if made != one.keys:
                    wrong.add(one.case)
        return len(self.programs) - len(wrong)

    # what operations wait for

    def _waits(self) -> dict[OperationKey, tuple[Relation, ...]]:
        """Return what each template waits for, as of ``Relation``."""
        seen: dict[OperationKey, list[_Seen]] = defaultdict(list)
        by_case: dict[int, dict[int, dict[str, float]]] = defaultdict(dict)
        for own in self.visits.values():
            for one in own:
                for row in one.rows:
                    by_case[one.case][row] = facts_of_row(one.facts, row - one.rows.start)
        asked: dict[OperationKey, set[_Source]] = defaultdict(set)
        for case, rows in by_case.items():
            self._see(self.programs[case], rows, asked, None)
        for case, rows in by_case.items():
            self._see(self.programs[case], rows, asked, seen)
        return {key: _relations(own) for key, own in seen.items()}

    def _see(
        self, program: StageProgram, rows: Mapping[int, dict[str, float]],
        asked: dict[OperationKey, set[_Source]], seen: dict[OperationKey, list[_Seen]] | None,
    ) -> None:  # fmt: skip
        """Note what explains a wait; with ``seen`` what came last of all that ever does."""
        sources: dict[int, set[int]] = defaultdict(set)
        for src, dst in zip(program.src.tolist(), program.dst.tolist(), strict=True):
            sources[dst].add(src)
        last: dict[_Source, int] = {}
        first: dict[int, int] = {}
        begins = {visit.rows.start: visit.segment for visit in program.visits}
        segment = -1
        own = [(key.stream, self.number[key]) for key in program.keys]
        for row, (key, (stream, number)) in enumerate(zip(program.keys, own, strict=True)):
            if row in begins:
                last = after_visit(last, first if begins[row] == segment else {})
                first, segment = {}, begins[row]
            first.setdefault(stream, row)
            if row in rows and seen is None:
                for src in sources.get(row, ()):
                    of, template = own[src]
                    ways = (of, -1), (-1, template), (-1, -1), (of, FIRST_OF_VISIT)
                    asked[key].update(one for one in ways if last.get(one) == src)
            elif row in rows and seen is not None:
                known = {one: last[one] for one in asked[key] if one in last}
                seen[key].append(_Seen(rows[row], known, sources.get(row, set())))
            last[stream, -1] = last[-1, number] = last[-1, -1] = row


def after_visit(last: dict[_Source, int], first: Mapping[int, int]) -> dict[_Source, int]:
    """Return what came last when a visit begins, with what came first on streams in that before.

    - ``first``: By stream; nothing before the first visit of a segment.
    """
    kept = {source: row for source, row in last.items() if source[1] != FIRST_OF_VISIT}
    return kept | {(stream, FIRST_OF_VISIT): row for stream, row in first.items()}


def facts_of_row(facts: dict[str, float], place: int) -> dict[str, float]:
    """Return the facts of a visit, and whether an operation is the first one of it."""
    return facts if place else {**facts, "leads": 1.0}


_Source = tuple[int, int]


class _Seen(NamedTuple):
    """What came last before an operation, as of ``Relation``, and for what it waits."""

    facts: dict[str, float]
    last: dict[_Source, int]
    sources: set[int]


def _relations(seen: Sequence[_Seen]) -> tuple[Relation, ...]:
    """Return the fewest relations that explain what an operation waits for."""
    left = [set(one.sources) for one in seen]
    found = []
    while any(left):
        often: Counter[_Source] = Counter()
        for one, missing in zip(seen, left, strict=True):
            often.update(source for source, row in one.last.items() if row in missing)
        if not often:
            break
        most = max(often.values())
        close = [source for source, count in often.items() if count >= 0.9 * most]
        wrong = {
            source: sum(source in one.last and one.last[source] not in one.sources for one in seen)
            for source in close
        }
        best = max(close, key=lambda source: (often[source] - wrong[source], source[0], source[1]))
        # waits that other relations explain say nothing
        known = [
            (one.facts, one.last[best] in missing)
            for one, missing in zip(seen, left, strict=True)
            if best in one.last and (one.last[best] in missing or one.last[best] not in one.sources)
        ]
        facts, answers = zip(*known, strict=True)
        found.append(Relation(*best, _tree(facts, answers)))
        for one, missing in zip(seen, left, strict=True):
            missing.discard(one.last.get(best, -1))
    return tuple(found)


def presence(
    facts: Sequence[Mapping[str, float]], answers: Sequence[bool], near: Collection[str]
) -> DecisionTree:
    """Return when an operation is there: by facts that matter for others like it, if they suffice.

    They do if no more of them explain all. Of an operation that few jobs have, other facts tell
    these jobs apart by chance.

    - ``near``: The facts that decide on operations of the same phase, or of the same name.
    """
    of_others = _tree([{k: v for k, v in one.items() if k in near} for one in facts], answers)
    of_all = _tree(facts, answers)
    known = zip(facts, answers, strict=True)
    suffices = all(of_others.decide(own) == holds for own, holds in known)
    return of_others if suffices and len(of_others.facts) <= len(of_all.facts) else of_all


def within(
    twin: DecisionTree, facts: Sequence[Mapping[str, float]], answers: Sequence[bool]
) -> DecisionTree | None:
    """Return when an operation is there that is only where its twin is; None if this is not so.

    What decides on the twin, which more jobs have, need not be found again; the rest is found
    where the twin is.
    """
    both = [(own, holds) for own, holds in zip(facts, answers, strict=True) if twin.decide(own)]
    if sum(holds for _, holds in both) < sum(answers):
        return None
    # of equally good questions the first one is asked: a fact of those who have the operation
    both.sort(key=lambda one: not one[1])
    return _put_in(twin, _tree([own for own, _ in both], [holds for _, holds in both]))


def _put_in(tree: DecisionTree, inner: DecisionTree) -> DecisionTree:
    if tree.low is None or tree.high is None:
        return inner if tree.answer else tree
    return DecisionTree(
        tree.answer, tree.fact, tree.least, _put_in(tree.low, inner), _put_in(tree.high, inner)
    )


def _tree(facts: Sequence[Mapping[str, float]], answers: Sequence[int | bool]) -> DecisionTree:
    if len(set(answers)) == 1:
        return DecisionTree(int(answers[0]))
    names = list(dict.fromkeys(name for one in facts for name in one))
    table = np.array([[one.get(name, 0.0) for name in names] for one in facts])
    return grow(names, table, np.array(answers, dtype=np.int64))


def _merged(
    sequences: Sequence[tuple[OperationKey, ...]], elsewhere: Mapping[tuple[str, str], int]
) -> list[OperationKey]:
    """Return all keys in an order that agrees with each sequence, as far as they agree.

    - ``elsewhere``: How often one name is before another in all bodies, which says how keys stand
      that never meet.
    """
    often = Counter(sequences)
    after: dict[OperationKey, Counter[OperationKey]] = defaultdict(Counter)
    for keys, times in often.items():
        for place, key in enumerate(keys):
            after[key].update(dict.fromkeys(keys[place + 1 :], times))

    def precedes(one: OperationKey, key: OperationKey) -> bool:
        own = after[one][key] - after[key][one]
        names = one.name, key.name
        return own > 0 or (own == 0 and elsewhere.get(names, 0) > elsewhere.get(names[::-1], 0))

    left = dict.fromkeys(key for keys in often for key in keys)
    found = []
    while left:
        # nothing that is left comes before it, or the least
        best = min(left, key=lambda key: sum(precedes(one, key) for one in left))
        found.append(best)
        del left[best]
    return found


class _Laws:
    """Finds the laws of templates, and counts how many hold."""

    def __init__(self, programs: Sequence[StageProgram]) -> None:
        self.programs = programs
        self.finder = LawFinder([one.values for one in programs])
        self.found = 0
        self.alike = 0

    def of(self, rows: Mapping[int, int]) -> _SizeLaws:
        """Return the laws of FLOPs, bytes, bytes sent and sides of a template."""
        cases = list(rows)
        sizes = np.array([self.programs[case].sizes[row] for case, row in rows.items()])
        sides = np.array([self.programs[case].sides[row] for case, row in rows.items()])
        has_sides = bool((sides >= 0).all())
        of_sides = (
            tuple(self._law(cases, sides[:, one].astype(np.float64)) for one in range(4))
            if has_sides else ()
        )  # fmt: skip
        given = sides.astype(np.float64) if has_sides else None
        laws = [
            self._law(cases, sizes[:, one].astype(np.float64), given)
            if (sizes[:, one] >= 0).all() else None
            for one in range(len(_NAMES))
        ]  # fmt: skip
        return laws[0], laws[1], laws[2], of_sides

    def _law(self, cases: Sequence[int], sizes: np.ndarray, sides: np.ndarray | None = None) -> Law:
        law = self.finder.find(cases, sizes, sides)
        self.found += 1
        worst = 0.0
        for place, case in enumerate(cases):
            values = self.finder.values[case]
            if sides is not None:
                values = values | {f"side_{one}": sides[place, one] for one in range(4)}
            worst = max(worst, abs(law.at(values) / max(sizes[place], 1.0) - 1))
        self.alike += int(worst < _NEAR or not sizes.any())
        return law


# the schedule


def schedule_facts(
    kinds: Sequence[str], done: Sequence[int], of_each: Sequence[int], before: int,
    values: StageValues,
) -> dict[str, float]:  # fmt: skip
    """Return what decides which kind of segment comes next: no number that grows with a job.

    - ``done``, ``of_each``: Segments of each kind so far, and in the whole step.
    - ``before``: The last kind; -1 for none.
    """
    found = dict(values.facts)
    to_end = values.stages - values.stage
    for place, kind in enumerate(kinds):
        found[f"{kind} left"] = float(done[place] < of_each[place])
        found[f"{kind} before"] = float(before == place)
        for other in range(place):
            ahead = done[other] - done[place] - to_end
            found[f"{kinds[other]} ahead of {kind}"] = float(max(min(ahead, 2), -2))
    return found


def _schedule(
    programs: Sequence[StageProgram], kinds: Sequence[str]
) -> tuple[DecisionTree, list[bool]]:
    """Return the tree of what comes next, and of each stage whether it comes back."""
    place = {kind: number for number, kind in enumerate(kinds)}
    examples: list[list[tuple[dict[str, float], int]]] = []
    for program in programs:
        own = [place[one.kind] for one in program.segments]
        of_each = [own.count(kind) for kind in range(len(kinds))]
        done, before, rows = [0] * len(kinds), -1, []
        for kind in (*own, len(kinds)):
            rows.append((schedule_facts(kinds, done, of_each, before, program.values), kind))
            if kind < len(kinds):
                done[kind] += 1
                before = kind
        examples.append(rows)
    different = {
        (tuple(sorted(facts.items())), kind): facts
        for rows in examples for facts, kind in rows
    }  # fmt: skip
    tree = _tree(list(different.values()), [kind for _, kind in different])
    return tree, [all(tree.decide(facts) == kind for facts, kind in rows) for rows in examples]
