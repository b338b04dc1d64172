"""Which tests try more cases where more is asked for."""

from __future__ import annotations

from pathlib import Path

from tests.amounts import names_by_amounts

MODULE = """
from tests.amounts import examples, some

SEEDS = range(examples(150))
OTHERS = range(3)

@pytest.fixture
def folders(): return some(FOLDERS)

@pytest.mark.parametrize("seed", SEEDS)
def test_parametrized(seed): pass

@settings(max_examples=examples(20))
def test_decorated(): pass

def helper(): return SEEDS

def test_with_a_fixture(folders): pass

def test_with_a_helper(): helper()

@pytest.mark.parametrize("seed", OTHERS)
def test_of_fixed_size(seed): pass
"""


def test_names_that_depend_on_how_much_is_tried(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(MODULE)
    assert names_by_amounts(module) - {"ALL", "examples", "some"} == {
        "SEEDS", "folders", "helper", "test_parametrized", "test_decorated", "test_with_a_fixture",
        "test_with_a_helper",
    }  # fmt: skip
