"""Which operations a selection finds, and what it says if there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

import nadi
from nadi.graph.event_graph import EventGraph
from nadi.whatif.selection import select
from tests.conftest import PairWriter
from tests.whatif.programs import ALL_REDUCE, kernel, launch, ranks_that_meet, spans


@pytest.fixture
def graph(pair: PairWriter) -> EventGraph:
    pair.op("module", 0, 100, cat="user_annotation")
    outer = pair.op("aten::linear", 10, 60)
    pair.op("aten::mm", 20, 30, parent=outer)
    launch(pair, 1, 25, 5)
    kernel(pair, 1, "gemm", 40, 60)
    pair.op("aten::mm", 120, 30)
    launch(pair, 2, 125, 5)
    kernel(pair, 2, "gemm", 140, 160, 9)
    pair.op("aten::add", 10, 10, tid=2)
    return nadi.build_graph(nadi.load_job(*pair.write()))


def found(graph: EventGraph, text: str) -> list[tuple[str, float]]:
    chosen = select(graph, nadi.whatif.parse_selection(text)).nonzero()[0]
    return sorted((graph.op_names[int(op)], graph.time[2 * op] / 1000) for op in chosen)


def test_conditions(graph: EventGraph) -> None:
    calls = [("cudaLaunchKernel", 25), ("cudaLaunchKernel", 125)]
    gemms = [("gemm", 40), ("gemm", 140)]
    mms = [("aten::mm", 20), ("aten::mm", 120)]
    rest = [("aten::add", 10), ("aten::linear", 10), ("module", 0)]
    assert found(graph, "mm") == mms + gemms
    assert found(graph, "^aten::m") == mms
    assert found(graph, "kind=kernel") == found(graph, "kind=device") == gemms
    assert found(graph, "kind=runtime,kernel") == calls + gemms
    assert found(graph, "kind=host") == sorted(calls + mms + rest)
    assert found(graph, "stream=9") == [("gemm", 140)]
    assert found(graph, "thread=2") == [("aten::add", 10)]
    assert found(graph, "rank=0") == found(graph, ".") == sorted(calls + gemms + mms + rest)


def test_around(graph: EventGraph) -> None:
    # device work is inside what its call is inside; what matches is not inside itself
    linear = [("aten::mm", 20), ("cudaLaunchKernel", 25), ("gemm", 40)]
    assert found(graph, "in=aten::linear") == linear
    assert found(graph, "in=module") == [("aten::linear", 10), *linear]
    assert found(graph, "gemm in=mm") == [("gemm", 40), ("gemm", 140)]
    assert found(graph, "kind=kernel in=module") == [("gemm", 40)]


def test_what_was_launched_stays_inside_after_changes(graph: EventGraph) -> None:
    without = nadi.whatif.apply_change(graph, nadi.whatif.parse_change("cut launch gemm"))
    assert found(without, "gemm in=aten::linear") == [("gemm", 40)]
    moved = nadi.whatif.apply_change(graph, nadi.whatif.parse_change("move gemm in=module to 33"))
    assert found(moved, "stream=33") == [("gemm", 40)]


def test_ranks_and_communication(tmp_path: Path) -> None:
    graph = ranks_that_meet(tmp_path, [10, 50, 20])
    assert [name for name, _ in found(graph, "kind=communication")] == [ALL_REDUCE] * 3
    assert found(graph, "rank=1 work") == [("work of 1", 0)]
    assert spans(graph, "scale rank=1 kind=operator 0.5")["work of 1"] == (0, 25)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gem", None),
        ("GEMM", r"'GEMM' matches none of the 6 operation names; did you mean gemm"),
        ("aten::mn", "did you mean aten::mm"),
        ("zzzzzzzz", "nadi run lists the top operations"),
        ("in=modul3", "'modul3' matches none .* did you mean module"),
        ("gemm rank=7", "selects no operation"),
        ("kind=memcpy", "selects no operation"),
    ],
)
def test_what_matches_nothing_says_so(graph: EventGraph, text: str, message: str | None) -> None:
    change = f"scale {text} 0.5"
    if message is None:
        assert nadi.what_if(graph, change).gain_ns > 0
        return
    with pytest.raises(nadi.errors.UsageError, match=message) as caught:
        nadi.what_if(graph, change)
    assert f"change '{change}'" in str(caught.value)


def test_values_that_no_text_could_have(graph: EventGraph) -> None:
    with pytest.raises(
        nadi.errors.UsageError, match="'gpu' is not a known kind; one of host, device"
    ):
        select(graph, nadi.whatif.Selection(kinds=("gpu",)))
    with pytest.raises(nadi.errors.UsageError, match="is not a regular expression"):
        select(graph, nadi.whatif.Selection(name="("))


@pytest.mark.parametrize(("length", "shown"), [(60, "{}"), (61, "{:.57}...")])
def test_suggested_names_are_cut_where_they_are_too_long(
    pair: PairWriter, length: int, shown: str
) -> None:
    name = "Long" + "x" * (length - 4)
    pair.op(name, 0, 10)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    with pytest.raises(nadi.errors.UsageError) as caught:
        nadi.what_if(graph, "scale LONG 0.5")
    assert str(caught.value).endswith(f"did you mean {shown.format(name)}")


def test_no_more_than_three_names_are_suggested(pair: PairWriter) -> None:
    for number in range(5):
        pair.op(f"aten::gemm_{number}", 10 * number, 5)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    with pytest.raises(nadi.errors.UsageError) as caught:
        nadi.what_if(graph, "scale GEMM 0.5")
    assert str(caught.value).count("aten::gemm_") == 3
