"""What ``nadi check`` says: each budget with what became of it, and what changed most."""

from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from nadi.bottlenecks.checks.budgets import CheckedRuns
from nadi.results.declared import (
    CHANGE_NS,
    FLAG,
    LABEL,
    NAME,
    NS,
    WORDS,
    Column,
    Lines,
    Result,
    Rows,
)
from nadi.units import format_bytes, format_change, format_counted, format_ns, printable

_CAUSES = 5  # of the changes of the critical path
_SLIGHT = 0.001  # of the step: smaller changes of the path are none


def _amount(row: dict[str, Any], key: str, sign: str = "") -> str:
    """Write a value of a row in its unit; ``sign`` stands before what is not negative."""
    value = row[key]
    if value is None:
        return "not known"
    form = format_bytes if row["unit"] == "bytes" else format_ns
    return f"{'-' if value < 0 else sign}{form(abs(round(value)))}"


def _change(row: dict[str, Any]) -> str:
    share = f" ({format_change(row['after'], row['before'])})" if row["before"] else ""
    return f"{_amount(row, 'change', '+')}{share}"


def _told(key: str, title: str, about: str, sign: str = "") -> Column:
    return Column(key, title, LABEL, about, shown=lambda row: _amount(row, key, sign))


def _headline(data: dict[str, Any]) -> str:
    states = [row["state"] for row in data["budgets"]]
    exceeded, unsure = states.count("exceeded"), states.count("not sure")
    total = format_counted(len(states), "budget")
    if exceeded:
        more = f"; {unsure} more by no more than the noise" if unsure else ""
        return f"{exceeded} of {total} exceeded{more}"
    if unsure:
        return f"no budget is exceeded by more than the noise; {unsure} of {total} by less"
    return f"{total} kept"


def _doubts(data: dict[str, Any]) -> Iterator[str]:
    """Say of which budgets chance could be the reason, and where nothing tells."""
    for row in data["budgets"]:
        if row["state"] == "not sure":
            yield (
                f"{row['budget']}: it is exceeded, but by no more than the noise; record more steps"
                " and further runs of the baseline (--baseline) to be sure"
            )
    if (runs := max(len(row["runs"]) for row in data["budgets"])) > 1:
        yield (
            f"baseline: the mean of {runs} runs; noise: what steps or these runs vary by, the "
            "larger one"
        )
    unknown = [row for row in data["budgets"] if row["noise"] is None]
    if unknown:
        names = ", ".join(row["budget"] for row in unknown)
        yield (
            f"the noise is not known, with one run and fewer than three values in a recording: "
            f"{names}; what is exceeded counts"
        )


def _path(found: CheckedRuns) -> Iterator[dict[str, Any]]:
    """Yield the rows of ``nadi diff`` that changed the step most."""
    differences = found.differences
    for row in differences.path.head(_CAUSES).iter_rows(named=True):
        if abs(row["change_ns"]) > _SLIGHT * differences.before_ns:
            yield row


CHECK = Result(
    kind="check", title="Budgets", order=-9,
    facts=(
        Column("is_exceeded", unit=FLAG),
        Column("of", get=lambda found: found.differences.of),
        Column("before_ns", unit=NS, get=lambda found: found.differences.before_ns),
        Column("after_ns", unit=NS, get=lambda found: found.differences.after_ns),
    ),
    headline=_headline,
    parts=(
        Rows(
            "budgets", lambda data: f"budgets, per {data['of']}", lambda found: found.budgets,
            (
                Column("budget", "budget", NAME, "what may grow",
                       get=lambda one: one.budget.what),
                Column("unit", get=lambda one: one.budget.unit),
                *map(Column, ("before", "after", "change", "allowed", "noise")),
                Column("repeats", get=lambda one: list(one.repeats)),
                Column("runs", get=lambda one: list(one.runs)),
                _told("before", "baseline", "the mean of the baseline"),
                _told("after", "new", "the mean of the new recording"),
                Column("change", "change", LABEL, "by how much it grew", shown=_change),
                _told("allowed", "allowed", "by how much it may grow", "+"),
                _told("noise", "noise (±)", "by how much the change may be off"),
                Column("state", "state", WORDS, "within, exceeded, or not sure"),
            ),
        ),
        Lines(_doubts),
        Rows(
            "path",
            lambda data: f"what changed most on the critical path, per {data['of']} (nadi diff)",
            _path,
            (
                Column("name", "operation", NAME, "empty for time without one"),
                Column("kind", "kind"),
                Column("cause", "cause", NAME, "what became of it"),
                Column("before_ns", "baseline", NS, "its time on the path of the baseline"),
                Column("after_ns", "new", NS, "its time on the path of the new recording"),
                Column("change_ns", "change", CHANGE_NS, "by how much it grew"),
            ),
        ),
    ),
)  # fmt: skip


def junit(data: dict[str, Any]) -> bytes:
    """Write a test case for each budget in the XML of JUnit, which systems of CI show.

    A budget that is exceeded by more than the noise is a failure.
    """
    rows = data["budgets"]
    failures = sum(row["state"] == "exceeded" for row in rows)
    suite = ElementTree.Element(
        "testsuite", name="nadi check", tests=str(len(rows)), failures=str(failures)
    )
    for row in rows:
        name = printable(row["budget"])
        case = ElementTree.SubElement(suite, "testcase", classname="nadi.check", name=name)
        said = (
            f"{name}: {_amount(row, 'before')} -> {_amount(row, 'after')}, {_change(row)}; "
            f"allowed: {_amount(row, 'allowed', '+')}; noise: {_amount(row, 'noise')}"
        )
        if row["state"] == "exceeded":
            ElementTree.SubElement(case, "failure", message=said)
        else:
            ElementTree.SubElement(case, "system-out").text = f"{row['state']}: {said}"
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suite) + b"\n"
