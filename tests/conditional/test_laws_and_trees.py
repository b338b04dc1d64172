"""Laws and trees that are known are found from cases, and hold beyond them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies

from nadi.sharing.conditional.decision_trees import grow
from nadi.sharing.conditional.program_learning import presence, within
from nadi.sharing.conditional.size_laws import FITS, LawFinder
from nadi.sharing.conditional.stage_values import StageValues, values_of_stages, with_usual


def cases(count: int, seed: int, most: int = 1024) -> list[StageValues]:
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        tp, dp, pp = (int(2 ** random.integers(0, 3)) for _ in range(3))
        known = with_usual(
            {
                "layers": pp * int(random.integers(1, 5)), "tp": tp, "dp": dp, "pp": pp,
                "hidden": 64 * int(random.integers(2, most // 64)), "sequence": 256,
                "ffn": tp * 64 * int(random.integers(2, most // 64)), "global_batch": 8 * dp,
                "vocab": 128 * int(random.integers(9, 99)), "gated": bool(random.integers(2)),
                "tied": bool(random.integers(2)), "micro_batch": int(random.integers(1, 5)),
            },
            "",
        )  # fmt: skip
        found.append(values_of_stages(known)[int(random.integers(pp))])
    return found


LAWS = {
    "product": lambda v: 2 * v.sizes["tokens"] * v.sizes["hidden"] * v.sizes["per_tp"],
    "sum of a fact": lambda v: (
        v.sizes["hidden"] * v.sizes["ffn"] * v.sizes["per_tp"] * (2 + v.facts["gated"])
    ),
    "parameters": lambda v: (
        30 * v.sizes["stage_layers"] * v.sizes["hidden"] * v.sizes["ffn"] * v.sizes["per_tp"]
        + 30 * v.sizes["hidden"] * v.sizes["vocab"] * v.sizes["per_tp"] * v.sizes["first_stage"]
        + 60 * v.sizes["stage_layers"] * v.sizes["hidden"]
    ),
    "two facts": lambda v: (
        (9 if v.facts["tied"] else 4) * v.sizes["tokens"] * v.sizes["hidden"]
        * (v.sizes["per_tp"] if v.facts["gated"] else 1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAWS)
def test_a_law_is_found_and_holds_beyond_its_cases(name: str) -> None:
    learned = [
        one._replace(sizes={"products": 0.0, "layer_products": 0.0, **one.sizes})
        for one in cases(150, 0)
    ]  # fmt: skip
    law = LawFinder(learned).find(range(150), np.array([LAWS[name](one) for one in learned]))
    for one in cases(40, 1, most=8192):
        assert law.at(one.sizes | one.facts) == pytest.approx(LAWS[name](one), rel=10 * FITS)


def with_flags(count: int, seed: int, most: int = 1024) -> list[StageValues]:
    """Return cases with more facts, one of which few cases have together with another."""
    random = np.random.default_rng(seed)
    found = []
    for place, one in enumerate(cases(count, seed, most)):
        bias, other = (float(random.integers(2)) for _ in range(2))
        facts = {**one.facts, "bias": bias, "other": other}
        facts["gated"] = float(place % 50 == 0) if bias else one.facts["gated"]
        found.append(one._replace(facts=facts))
    return found


def of_layer(v: StageValues) -> float:
    """Return a sum whose small terms are a thousandth of it, one of them in few cases only."""
    sizes, facts = v.sizes, v.facts
    wide = sizes["ffn"] * sizes["per_tp"]
    return (
        4 * sizes["hidden"] * wide + (4 + 8 * facts["other"]) * sizes["hidden"]
        + 4 * (sizes["hidden"] + wide * (1 + facts["gated"])) * facts["bias"]
        + 12 * wide * facts["tied"]
    )  # fmt: skip


def test_a_long_law_holds_to_the_byte_and_sums_of_it_too() -> None:
    learned = [
        one._replace(sizes={"products": 0.0, "layer_products": 0.0, **one.sizes})
        for one in with_flags(200, 0)
    ]  # fmt: skip

    def of_stage(v: StageValues) -> float:
        return 3 * v.sizes["stage_layers"] * of_layer(v) + 12 * v.sizes["hidden"] * v.sizes["vocab"]

    finder = LawFinder(learned)
    law, of_all = (
        finder.find(range(200), np.array([of(one) for one in learned]))
        for of in (of_layer, of_stage)
    )  # fmt: skip
    for one in with_flags(100, 1, most=65_536):
        values = one.sizes | one.facts
        assert law.at(values) == pytest.approx(of_layer(one), rel=1e-12)
        assert of_all.at(values) == pytest.approx(of_stage(one), rel=1e-12)


def test_a_law_of_sides() -> None:
    learned = cases(40, 0)
    random = np.random.default_rng(0)
    sides = random.integers(1, 99, (40, 4)).astype(np.float64)
    sizes = 2 * sides.prod(axis=1) + 2 * sides[:, 0] * sides[:, 1] * sides[:, 3]
    law = LawFinder(learned).find(range(40), sizes, sides)
    given_sides = {f"side_{one}": 7.0 for one in range(4)}
    assert law.at(given_sides) == pytest.approx(2 * 7**4 + 2 * 7**3)


def test_what_is_met_few_times_gets_the_law_of_what_is_met_often() -> None:
    learned = [
        one._replace(sizes={"products": 0.0, "layer_products": 0.0, **one.sizes})
        for one in cases(150, 0)
    ]  # fmt: skip
    sizes = np.array([LAWS["two facts"](one) for one in learned])
    finder = LawFinder(learned)
    finder.find(range(150), sizes)
    few = finder.find(range(4), 3 * sizes[:4])
    for one in cases(40, 1):
        assert few.at(one.sizes | one.facts) == pytest.approx(3 * LAWS["two facts"](one))


@given(strategies.lists(strategies.tuples(*[strategies.booleans()] * 4), min_size=1, max_size=30))
def test_a_tree_says_what_it_learned(rows: list[tuple[bool, bool, bool, bool]]) -> None:
    names = ["a", "b", "c", "d"]
    table = np.array(rows, dtype=np.float64)
    answers = np.array([int(one[0]) + 2 * int(one[3]) for one in rows], dtype=np.int64)
    tree = grow(names, table, answers)
    for row, answer in zip(table, answers, strict=True):
        assert tree.decide(dict(zip(names, row.tolist(), strict=True))) == answer


def test_operations_of_few_jobs_depend_on_what_others_like_them_depend_on() -> None:
    """One of three jobs with experts recomputes, and it alone has gated layers on two ranks."""
    facts = [
        {"gated": gated, "ranks": ranks, "recompute": recompute, "experts": 0.0}
        for gated in (0.0, 1.0) for ranks in (0.0, 1.0) for recompute in (0.0, 1.0)
    ] * 4  # fmt: skip
    facts += [
        {"gated": 1.0, "ranks": 1.0, "recompute": 1.0, "experts": 1.0},
        {"gated": 1.0, "ranks": 0.0, "recompute": 0.0, "experts": 1.0},
        {"gated": 0.0, "ranks": 1.0, "recompute": 0.0, "experts": 1.0},
    ]
    answers = [one["experts"] * one["recompute"] > 0 for one in facts]
    tree = presence(facts, answers, {"recompute", "experts"})
    assert tree.facts == {"recompute", "experts"}
    for gated in (0.0, 1.0):
        asked = {"gated": gated, "ranks": 1.0, "experts": 1.0}
        assert tree.decide({**asked, "recompute": 1.0})
        assert not tree.decide({**asked, "recompute": 0.0})
    other = presence(facts, answers, {"gated", "ranks"})  # these do not suffice
    assert all(other.decide(own) == holds for own, holds in zip(facts, answers, strict=True))


def test_what_few_jobs_have_beside_its_twin_is_there_where_the_twin_is() -> None:
    """Of three jobs with experts one sends their gradients; that it alone recomputes is chance."""
    facts = [
        {"sharded": sharded, "ranks": ranks, "recompute": recompute, "experts": 0.0}
        for sharded in (0.0, 1.0) for ranks in (0.0, 1.0) for recompute in (0.0, 1.0)
    ] * 4  # fmt: skip
    facts += [
        {"sharded": 0.0, "ranks": 1.0, "recompute": 1.0, "experts": 1.0},
        {"sharded": 1.0, "ranks": 1.0, "recompute": 0.0, "experts": 1.0},
        {"sharded": 0.0, "ranks": 0.0, "recompute": 0.0, "experts": 1.0},
    ]
    sends = [one["ranks"] > one["sharded"] for one in facts]
    twin = presence(facts, sends, ())
    of_experts = [one["experts"] * there > 0 for one, there in zip(facts, sends, strict=True)]
    tree = within(twin, facts, of_experts)
    assert tree is not None
    for recompute in (0.0, 1.0):
        asked = {"recompute": recompute, "experts": 1.0}
        assert tree.decide({**asked, "ranks": 1.0, "sharded": 0.0})
        assert not tree.decide({**asked, "ranks": 1.0, "sharded": 1.0})
        assert not tree.decide({**asked, "ranks": 0.0, "sharded": 0.0})
    assert within(twin, facts, [True] * len(facts)) is None
