"""Results that others wrote: whatever stands where a number or a name does, no markup of theirs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.amounts import examples
from tests.fuzz.commands import run_line
from tests.report.page_numbers import read_page

MARKUP = "\"'></script></style></title>--><own-tag onload=alert(1)></own-tag>"
KEPT = Path(__file__).parents[1] / "kept_outputs"
KINDS = (
    "estimate", "memory-place", "memory-plan", "run-step", "search", "serve",
    "serve-search", "serve-sweep", "simulate", "waits", "what-if",
)  # fmt: skip
OTHERS = (MARKUP, [MARKUP], {MARKUP: MARKUP}, 1e308, -1, None)


def places(value: Any, outer: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Give where each value stands, and each object."""
    inner = enumerate(value) if isinstance(value, list) else ()
    for key, one in value.items() if isinstance(value, dict) else inner:
        yield from places(one, (*outer, key))
    if not isinstance(value, list):
        yield outer


def changed(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    """Give a copy with another value at a place; an object gets it under a key of markup, too."""
    if not place:
        if not isinstance(value, dict):
            return new
        return {**value, MARKUP: next(iter(value.values()), new)}
    copy = value.copy()
    copy[place[0]] = changed(value[place[0]], place[1:], new)
    return copy


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_has_no_markup_of_its_results(kind: str, tmp_path: Path) -> None:
    results = json.loads((KEPT / f"{kind}.json").read_bytes())
    given, page = tmp_path / "results.json", tmp_path / "page.html"
    chance, found = random.Random(kind), list(places(results))
    for number in range(examples(100)):
        new = OTHERS[number % len(OTHERS)]
        given.write_text(json.dumps(changed(results, chance.choice(found), new)))
        page.unlink(missing_ok=True)
        run_line(["report", str(given), "-o", str(page)])
        if page.exists():
            read_page(page.read_text())  # whose elements end, and have no scripts of their own
