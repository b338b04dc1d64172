"""What verification programs print and how they leave."""

from __future__ import annotations

import pytest
from _report import Checks, Tally


def tally_of(*results: tuple[bool, str]) -> Tally:
    tally = Tally()
    for exact, rule in results:
        tally.add(exact=exact, rule=rule, detail="why")
    return tally


def test_equal_comes_before_a_rule() -> None:
    tally = tally_of((True, "rule"), (False, "rule"), (False, ""))
    assert (tally.exact, dict(tally.rules), tally.unexplained) == (1, {"rule": 1}, ["why"])


@pytest.mark.parametrize(
    ("results", "last_line", "status"),
    [
        ([(True, ""), (False, "rule")], "2 of 2 exact or explained", 0),
        ([(True, ""), (False, "rule"), (False, "")], "2 of 3 exact or explained", 1),
        ([(True, "")], "1 of 1 exact", 0),
        ([], "0 of 0 exact", 1),
    ],
)
def test_last_line_and_status(
    results: list[tuple[bool, str]],
    last_line: str,
    status: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    checks = Checks()
    checks.add_tally("things", tally_of(*results))
    with pytest.raises(SystemExit) as left:
        checks.finish()
    assert capsys.readouterr().out.splitlines()[-1] == last_line
    assert left.value.code == status
