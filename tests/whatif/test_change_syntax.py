"""Changes as text: what is written is read back as the same change."""

from __future__ import annotations

import pytest
from hypothesis import example, given, strategies as st

import nadi
from nadi.whatif import (
    AddDependency,
    Balance,
    CutDependencies,
    Fuse,
    Graphed,
    MoveToStream,
    NoGaps,
    NoOverhead,
    OnNetwork,
    Remove,
    Scale,
    ScaleWait,
    Selection,
    SetTime,
    parse_values,
)
from nadi.whatif.change_syntax import FORMS
from nadi.whatif.changes import CUTTABLE
from nadi.whatif.selection import KINDS, compile_expression


def is_expression(text: str) -> bool:
    try:
        compile_expression(text)
    except ValueError:
        return False
    return True


AWKWARD = st.lists(
    st.sampled_from([
        "a", "aten::mm", " ", "  ", "\t", "'", '"', "->", ".", "to", "7", "kind=kernel", "rank=",
        "in=", "=", ",", "|", "\\(", "{}", "0.5", "ü", "\u2028",
    ]),
    max_size=6,
).map("".join)  # fmt: skip
expressions = st.one_of(AWKWARD, st.text(max_size=8)).filter(is_expression)
numbers = st.lists(st.integers(0, 2**40), max_size=3).map(tuple)
selections = st.builds(
    Selection, expressions, st.lists(st.sampled_from(KINDS), max_size=2).map(tuple),
    numbers, numbers, numbers, expressions,
    st.lists(st.sampled_from(["0", "17", "decode", "graph-8"]), max_size=2).map(tuple),
)  # fmt: skip
times = st.integers(0, 2**61)
changes = st.one_of(
    st.builds(Scale, selections, st.floats(0, 1e300)),
    st.builds(SetTime, selections, times),
    st.builds(Remove, selections),
    st.builds(Balance, selections),
    st.builds(ScaleWait, selections, st.floats(0, 1e300)),
    st.builds(Fuse, selections),
    st.builds(Graphed, selections),
    st.builds(MoveToStream, selections, st.integers(0, 2**40)),
    st.builds(AddDependency, selections, selections),
    st.builds(CutDependencies, st.sampled_from(CUTTABLE), selections),
    st.builds(NoOverhead, selections),
    st.builds(NoGaps),
    st.builds(OnNetwork, st.floats(1, 1e300), times),
)


@given(changes)
@example(Scale(Selection(name="it's"), 0.1))
@example(Scale(Selection(name="."), 1))
@example(Scale(Selection(), 1))
@example(AddDependency(Selection(name="a -> b"), Selection(inside="->")))
@example(MoveToStream(Selection(name="a to 7"), 7))
@example(Remove(Selection(name="'a' b 'c'")))
@example(Scale(Selection(name="wait for"), 1))
@example(ScaleWait(Selection(name="wait"), 0.25))
@example(OnNetwork(100e9, 5_000))
def test_what_is_written_reads_back(change: nadi.whatif.Change) -> None:
    assert nadi.whatif.parse_change(str(change)) == change


def test_every_form_is_tried() -> None:
    assert len(FORMS) == 13
    for text, change in (
        ("scale aten::mm 0.5", Scale(Selection("aten::mm"), 0.5)),
        ("set gemm kind=kernel 1.5us", SetTime(Selection("gemm", kinds=("kernel",)), 1_500)),
        ("remove rank=0,2", Remove(Selection(ranks=(0, 2)))),
        ("scale wait in=fetch 0.5", ScaleWait(Selection(inside="fetch"), 0.5)),
        ("scale gemm step=3,decode 2", Scale(Selection("gemm", steps=("3", "decode")), 2)),
        ("remove wait", ScaleWait(Selection(), 0)),
        ("balance aten::mm rank=0,1", Balance(Selection("aten::mm", ranks=(0, 1)))),
        ("fuse a|b stream=7", Fuse(Selection("a|b", streams=(7,)))),
        ("cuda-graph 'Step 1'", Graphed(Selection("Step 1"))),
        ("move nccl to 20", MoveToStream(Selection("nccl"), 20)),
        ("add a thread=3 -> b", AddDependency(Selection("a", threads=(3,)), Selection("b"))),
        ("cut sync in='x y'", CutDependencies(nadi.graph.EdgeKind.SYNC, Selection(inside="x y"))),
        ("no-overhead", NoOverhead(Selection(kinds=("device",)))),
        ("no-overhead .", NoOverhead(Selection())),
        ("no-gaps", NoGaps()),
        ("balanced ranks", Balance()),
        ("network 400GB/s", OnNetwork(400e9)),
        ("network 100Gb/s 5us", OnNetwork(12.5e9, 5_000)),
    ):
        assert nadi.whatif.parse_change(text) == change
        assert text.split()[0] in FORMS


def test_changes_are_written_as_people_write_them() -> None:
    for text in ("scale aten::mm 0.5", "scale (a|b) c 2", "scale . 0", "set a 10us", "set a 0ns",
                 "network 400GB/s 5us", "network 12.5GB/s", "remove kind=kernel rank=0,1",
                 "add a -> b", "no-overhead kind=device"):  # fmt: skip
        assert str(nadi.whatif.parse_change(text)) == text


def test_words_of_a_selection_in_any_order() -> None:
    assert nadi.whatif.parse_selection("a kind=kernel b rank=1") == nadi.whatif.parse_selection(
        "rank=1 a b kind=kernel"
    )
    assert nadi.whatif.parse_selection('"it""s" in="a b"') == Selection('it"s', inside="a b")
    assert nadi.whatif.parse_selection("it's") == Selection("it's")
    assert nadi.whatif.parse_selection("kinds=kernel") == Selection("kinds=kernel")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a known change"),
        ("delete mm 1", "is not a known change"),
        ("scale", "a word is missing"),
        ("scale mm", "a word is missing"),
        ("scale mm fast", "expected a number, got 'fast'"),
        ("scale mm -1", "number of 0 or more"),
        ("scale mm nan", "number of 0 or more"),
        ("scale mm inf", "number of 0 or more"),
        ("scale ( 1", "is not a regular expression"),
        ("scale in=( 1", "is not a regular expression"),
        ("scale kind=gpu 1", "kind=gpu is not one of host, device"),
        ("scale kind= 1", "kind= says nothing"),
        ("scale kind=kernel, 1", "a value is missing"),
        ("scale rank=0 rank=1 1", "rank= is given twice"),
        ("scale rank=one 1", "expected numbers"),
        ("scale rank=-1 1", "expected numbers"),
        ("scale rank=99999999999999999999999 1", "expected numbers"),
        ("set mm 10", "is not a time such as 10us"),
        ("set mm 1e999s", "exceeds the largest time"),
        ("set mm 9e9s", "exceeds a century"),
        ("remove", "does not select any operations"),
        ("move nccl", "does not name a stream"),
        ("move nccl to x", "does not name a stream"),
        ("move nccl to 99999999999999999999999", "does not name a stream"),
        ("add a b", "exactly one arrow"),
        ("add a -> b -> c", "exactly one arrow"),
        ("add a ->", "does not select any operations"),
        ("cut everything a", "'everything' is not one of launch, stream, sync, thread, arrival"),
        ("cut sync", "does not select any operations"),
        ("no-gaps now", "takes no arguments"),
        ("network", "expected a bandwidth"),
        ("network 4 GB/s 5us", "expected a bandwidth"),
        ("network fast", "is not a bandwidth such as"),
        ("network 0GB/s", "is not a bandwidth such as"),
        ("network 1e999GB/s", "exceeds the largest bandwidth"),
        ("network 1GB/s soon", "is not a time such as"),
    ],
)
def test_malformed_changes(text: str, message: str) -> None:
    with pytest.raises(nadi.errors.UsageError, match=message) as caught:
        nadi.whatif.parse_change(text)
    assert repr(text) in str(caught.value)


def test_values_of_a_sweep() -> None:
    assert parse_values("0.5, 1,2") == ["0.5", "1", "2"]
    assert parse_values("0.5:1:0.25") == ["0.50", "0.75", "1.00"]
    assert parse_values("3:1:-1") == ["3", "2", "1"]
    assert parse_values("2:2:1") == ["2"]
    assert len(parse_values("1:1000:1")) == 1000
    for text in (
        "1:2",
        "1:2:0",
        "1:2:-1",
        "a:b:c",
        "0:1:0.0001",
        "0:1000:1",
        "1:nan:1",
        "0:inf:1",
        "0:1e999999999:1",
    ):
        with pytest.raises(nadi.errors.UsageError, match="is not a range of at most 1,000 values"):
            parse_values(text)
