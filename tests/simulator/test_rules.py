"""The rules that a system is simulated by: one choice, and what ASTRA-sim does differently."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nadi.simulation
from nadi.errors import UsageError
from nadi.simulation.rules import AstraSimRules, DefaultRules, rules_of
from nadi.systems import Collectives, Dimension, Network, System

SOURCE = Path(nadi.__file__).parent
# those that read the setting from a file, or choose by it
ASKING = {
    "simulation/rules.py", "systems/system_file.py", "systems/importers/astra_sim.py",
    "systems/prices/priced_traces.py",
}  # fmt: skip


def system(compat: str, num_dimensions: int = 1) -> System:
    ring = Dimension("ring", 2, 50.0, 500.0)
    return System(Network((ring,) * num_dimensions), compat=compat)  # type: ignore[arg-type]


def test_nobody_but_the_choice_of_rules_asks_whose_they_are() -> None:
    asking = {
        str(path.relative_to(SOURCE))
        for folder in ("simulation", "systems")
        for path in (SOURCE / folder).rglob("*.py")
        if path.parent.name != "runs" and ".compat" in path.read_text()
    }
    assert asking == ASKING


def test_a_system_says_by_whose_rules_it_is_simulated() -> None:
    assert type(rules_of(system(""))) is DefaultRules
    assert type(rules_of(system("astra-sim"))) is AstraSimRules


def test_what_overrides_a_rule_has_that_rule_to_override() -> None:
    own = {name for name in vars(AstraSimRules) if not name.startswith("__")}
    assert own <= set(vars(DefaultRules))


def test_chunks_share_what_remains_and_with_astra_sim_it_is_one_more_chunk() -> None:
    three = System(Network((Dimension("ring", 2, 50.0, 500.0),)), collectives=Collectives(chunks=3))
    assert DefaultRules().chunks_of(three, "all_reduce", 100, 2, str) == (3, 33, 1)
    assert AstraSimRules().chunks_of(three, "all_reduce", 100, 2, str) == (4, 33, 0)
    assert AstraSimRules().chunks_of(three, "all_reduce", 3, 2, str) == (3, 2, 0)
    with pytest.raises(UsageError, match="cannot be cut into 3 parts"):
        AstraSimRules().chunks_of(three, "all_gather", 2, 2, lambda: "node 0")


def test_a_dimension_without_an_algorithm_is_left_out_by_astra_sim() -> None:
    for compat, dims in (("", [0, 1]), ("astra-sim", [0])):
        one = system(compat, 2)
        recipe = rules_of(one).recipe_of(one, "all_to_all")
        assert [phase.dim for phase in recipe.phases] == dims


def test_astra_sim_counts_whole_microseconds_and_loses_what_does_not_divide() -> None:
    times = np.array([499, 500, 1_499, 1_500])
    assert AstraSimRules().recorded(times).tolist() == [0, 1_000, 1_000, 2_000]
    assert DefaultRules().recorded(times).tolist() == times.tolist()
    assert (AstraSimRules().rounds_down, DefaultRules().rounds_down) == (True, False)


def test_what_astra_sim_has_no_algorithm_for_has_a_stand_in() -> None:
    assert AstraSimRules().in_place_of("broadcast", 100, 3) == ("all_gather", 34)
    assert AstraSimRules().in_place_of("all_to_all", 100, 3) == ("all_to_all", 100)
    assert DefaultRules().in_place_of("broadcast", 100, 3) == ("broadcast", 100)
    assert AstraSimRules().stand_in("barrier") == "all_reduce"
    assert DefaultRules().stand_in("barrier") == ""
