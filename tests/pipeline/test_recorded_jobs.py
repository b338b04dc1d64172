"""What the main jobs take from Python."""

from __future__ import annotations

from pathlib import Path

import pytest

import nadi
from nadi.errors import UsageError

pytestmark = pytest.mark.usefixtures("demo_read_once")

CHANGE = "scale gloo:all_reduce {}"
HALVED = CHANGE.replace("{}", "0.5")


def test_a_text_in_the_place_of_a_list_of_changes_is_one_change(demo_folder: Path) -> None:
    done = nadi.run(demo_folder, what_if=HALVED)
    assert [answer.window_ns for answer in done.what_ifs] == [
        answer.window_ns for answer in nadi.run(demo_folder, what_if=[HALVED]).what_ifs
    ]
    assert len(done.what_ifs) == 1
    asked = nadi.bottlenecks.ask(demo_folder, changes=HALVED)
    assert (asked.asked, asked.together) == ((HALVED,), None)
    assert asked.whole.window_ns == done.what_ifs[0].window_ns
    swept = nadi.bottlenecks.ask(demo_folder, changes=CHANGE, sweep_over="0.5,1").sweep
    again = nadi.whatif.sweep(done.graph, CHANGE, "0.5:1:0.5", done.window)
    listed = nadi.whatif.sweep(done.graph, [CHANGE], ["0.5", "1"], done.window)
    for answers in (swept, listed):
        assert [answer.window_ns for _, answer in answers] == [a.window_ns for _, a in again]
    assert again[0][1].window_ns == done.what_ifs[0].window_ns < again[1][1].window_ns
    with pytest.raises(UsageError, match=r"^changes: no change contains the placeholder"):
        nadi.whatif.sweep(done.graph, HALVED, "1,2")
    with pytest.raises(UsageError, match=r"^values='1:0:0': is not a range"):
        nadi.whatif.sweep(done.graph, CHANGE, "1:0:0")
