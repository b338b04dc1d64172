"""Which changes are tried of those that a critical path suggests, and which are returned."""

from __future__ import annotations

from pathlib import Path

import pytest

import nadi
from nadi.graph.event_graph import EventGraph
from nadi.graph.rank_excess import Excess, ExcessPart
from nadi.whatif.promising_changes import TriedChange, best_changes
from tests.conftest import PairWriter
from tests.whatif.programs import kernel, launch, ranks_that_meet, three_kernels


def tried(graph: EventGraph, **options: object) -> list[TriedChange]:
    window = nadi.graph.choose_window(graph, [])
    path = nadi.critical_path(nadi.graph.replay_graph(graph), window)
    return best_changes(graph, window, path, most=99, **options)  # type: ignore[arg-type]


def texts(found: list[TriedChange]) -> list[str]:
    return [str(one.change) for one in found]


def test_the_largest_gain_comes_first_and_is_what_its_change_gains(pair: PairWriter) -> None:
    graph = three_kernels(pair)
    found = tried(graph)
    gains = [one.gain_ns for one in found]
    assert gains == sorted(gains, reverse=True)
    assert "scale ^k1$ 0.5" in texts(found)
    for one in found:
        answer = nadi.what_if(graph, one.change)
        assert (one.window_ns, one.gain_ns) == (answer.window_ns, answer.gain_ns)
        assert one.gain_ns >= answer.measured_ns / 200


@pytest.mark.parametrize("most", [1, 2, 3])
def test_no_more_are_returned_than_asked_for(pair: PairWriter, most: int) -> None:
    graph = three_kernels(pair)
    window = nadi.graph.choose_window(graph, [])
    path = nadi.critical_path(nadi.graph.replay_graph(graph), window)
    few = best_changes(graph, window, path, most=most)
    assert texts(few) == texts(tried(graph))[:most]


def excess(kind: str) -> Excess:
    most = ExcessPart("work of 1", 1, 1, 50_000, 20_000)
    return Excess("slower operations", kind, 30_000, 1, 1, False, 0.0, most, None)


def test_what_a_late_rank_does_more_is_given_to_the_others(tmp_path: Path) -> None:
    graph = ranks_that_meet(tmp_path, [10, 50, 20])
    found = tried(graph, late=excess("host op"))
    assert {"balanced ranks", r"balance ^work\ of\ 1$"} <= {*texts(found)}
    assert not any("rank=1" in one for one in texts(found))


@pytest.mark.parametrize("kind", ["host gap", "delay"])
def test_time_without_an_operation_is_not_given_away(tmp_path: Path, kind: str) -> None:
    graph = ranks_that_meet(tmp_path, [10, 50, 20])
    assert r"balance ^work\ of\ 1$" not in texts(tried(graph, late=excess(kind)))


def two_long(pair: PairWriter, names: tuple[str, str]) -> list[str]:
    pair.op("step", 0, 30)
    for number, name in enumerate(names):
        launch(pair, number, 2 + 8 * number, 4)
        kernel(pair, number, name, 10 + 100 * number, 110 + 100 * number)
    return texts(tried(nadi.build_graph(nadi.load_job(*pair.write()))))


def test_a_long_name_is_said_by_a_word_that_no_other_name_has(pair: PairWriter) -> None:
    found = two_long(pair, ("void common_kernel_part_first<float, 4, 4>()",
                            "void common_kernel_part_second<float, 4, 4>()"))  # fmt: skip
    assert {"scale common_kernel_part_first 0.5", "scale common_kernel_part_second 0.5"} <= {*found}


def test_a_long_name_whose_words_others_have_too_is_said_in_full(pair: PairWriter) -> None:
    found = two_long(pair, ("void common_kernel_of_some_length<4, 4, 4>()",
                            "void common_kernel_of_some_length<8, 8, 8>()"))  # fmt: skip
    assert r"scale ^void\ common_kernel_of_some_length<4,\ 4,\ 4>\(\)$ 0.5" in found


@pytest.mark.parametrize(("kernel_us", "is_tried"), [(50, True), (1_000, False)])
def test_a_step_is_captured_where_the_host_is_a_tenth_of_the_path(
    pair: PairWriter, kernel_us: int, *, is_tried: bool
) -> None:
    """Its operations and the gaps between them together."""
    at = 0
    for step in range(3):
        pair.event("step", at, 60, "user_annotation")
        pair.op("aten::a", at, 20)
        pair.op("aten::b", at + 40, 20)
        launch(pair, step + 1, at + 45, 5)
        kernel(pair, step + 1, "k", at + 55, at + 55 + kernel_us)
        pair.event("cudaDeviceSynchronize", at + 62, kernel_us - 5, "cuda_runtime",
                   correlation=90 + step)  # fmt: skip
        at += kernel_us + 100
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    found = tried(graph, mark="step")
    assert any(one.about == "step" for one in found) == is_tried


@pytest.mark.parametrize(("length", "is_in_full"), [(40, True), (41, False)])
def test_names_of_up_to_40_characters_are_said_in_full(
    pair: PairWriter, length: int, *, is_in_full: bool
) -> None:
    name = f"first_word {'x' * (length - 16)} last"
    assert len(name) == length
    found = two_long(pair, (name, "other"))
    assert any(one.startswith("scale ^first_word") for one in found) == is_in_full
    assert ("scale first_word 0.5" in found) != is_in_full


def functions(pair: PairWriter, *around: tuple[str, float, float]) -> EventGraph:
    """Make three steps of 10 operations with time between them, and functions around some."""
    for step in range(3):
        at = 100 + 1_000.0 * step
        for name, begin, end in around:
            pair.event(name, at + begin, end - begin, "python_function")
        for number in range(10):
            pair.op(f"aten::small{number}", at + 100 * number, 60)
    return nadi.build_graph(nadi.load_job(*pair.write()))


def test_the_range_that_leads_is_tried(pair: PairWriter) -> None:
    graph = functions(pair, ("train.py(20): log", 300, 760))
    (found,) = (one for one in tried(graph, leads="train.py(20): log") if "log" in one.about)
    assert str(found.change) == "scale in=log 0.5"
    assert found.gain_ns == 3 * 230_000  # half of it all, with the time around its operations


def with_backward(pair: PairWriter, *names: str) -> EventGraph:
    """Make a step of functions that call an operator each, and of the backward of these."""
    thread = {"Fwd thread id": 1}
    for number, name in enumerate(names):
        pair.event(name, 100 * number, 80, "python_function")
        pair.op("aten::mm", 100 * number + 5, 70, **{"Sequence number": number})
        at = 1_000 + 200 * number
        pair.op("MmBackward0", at, 150, **{"Sequence number": number}, **thread)
    return nadi.build_graph(nadi.load_job(*pair.write()))


def test_half_of_a_function_is_half_of_its_backward_too(pair: PairWriter) -> None:
    graph = with_backward(pair, "train.py(7): score", "train.py(9): penalty")
    found = tried(graph, leads="train.py(9): penalty")
    (one,) = (one for one in found if "penalty" in one.about)
    assert (str(one.change), one.gain_ns) == ("scale in=penalty 0.5", (80_000 + 150_000) // 2)


def test_of_functions_of_one_name_the_file_says_which(pair: PairWriter) -> None:
    graph = with_backward(pair, "a.py(7): loss", "b.py(7): loss", "b.py(9): rest")
    (one,) = (one for one in tried(graph, leads="b.py(7): loss") if "loss" in one.about)
    assert str(one.change) == r"scale in='(.*\.)?b\.py\(7\):\ loss' 0.5"
    assert one.gain_ns == (80_000 + 150_000) // 2


@pytest.mark.parametrize("own", [0, 100])
def test_of_what_gains_the_same_that_of_fewer_operations_is_named(
    pair: PairWriter, own: float
) -> None:
    """A function with nothing but one operation in it, or with time of its own."""
    pair.event("train.py(20): log", 300, 600 + own, "python_function")
    pair.op("aten::log", 300, 600)
    pair.op("aten::mm", 1_000, 500)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    found = texts(tried(graph, leads="train.py(20): log"))
    assert "scale ^aten::log$ 0.5" in found
    assert ("scale in=log 0.5" in found) == (own > 0)


def test_a_range_of_pytorch_that_leads_is_not_tried(pair: PairWriter) -> None:
    pair.event("DistributedDataParallel.forward", 400, 660, "user_annotation")
    graph = functions(pair)
    assert not any(
        "Parallel" in one.about for one in tried(graph, leads="DistributedDataParallel.forward")
    )


def test_modules_of_a_class_that_lead_are_tried_together(pair: PairWriter) -> None:
    around = [(f"nn.Module: Linear_{n}", 300 * n, 300 * n + 160) for n in (1, 2)]
    graph = functions(pair, *around, ("nn.Module: LinearRelu_0", 0, 60))
    (found,) = (one for one in tried(graph, leads="nn.Module: Linear") if "Linear" in one.about)
    assert (str(found.change), found.gain_ns) == ("scale in=Linear 0.5", 3 * 2 * 80_000)


def test_a_function_that_holds_the_whole_step_is_not_tried(pair: PairWriter) -> None:
    graph = functions(pair, ("train.py(7): step", -10, 985), ("train.py(20): log", 299, 870))
    found = texts(tried(graph))
    assert any("log" in one for one in found)
    assert [one for one in found if "step" in one] == []


def test_a_function_that_is_called_by_itself_counts_once(pair: PairWriter) -> None:
    graph = functions(pair, ("train.py(7): walk", 299, 860), ("train.py(7): walk", 305, 850))
    assert any("walk" in one for one in texts(tried(graph, leads="train.py(7): walk")))


@pytest.mark.parametrize(("length", "is_tried"), [(38, True), (3, False)])
def test_no_garbage_collection_is_tried(pair: PairWriter, length: int, *, is_tried: bool) -> None:
    graph = functions(pair, ("garbage collection", 261, 261 + length))
    of_garbage = [one for one in tried(graph) if "garbage" in one.about]
    found = [(one.about, str(one.change), one.gain_ns) for one in of_garbage]
    expected = ("no garbage collection", r"remove ^garbage\ collection$", 3_000 * length)
    assert found == [expected] * is_tried


OWN_LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
OTHER_LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


@pytest.mark.parametrize(
    ("loader", "change"),
    [(OWN_LOADER, "remove enumerate"), (OTHER_LOADER, "remove wait in=DataLoader")],
)
def test_a_data_loader_works_in_other_processes_or_is_waited_for(
    pair: PairWriter, loader: str, change: str
) -> None:
    for step in range(3):
        at = 3_000.0 * step
        pair.event(f"ProfilerStep#{step}", at, 3_000, "user_annotation")
        pair.event(loader, at + 100, 2_000, "user_annotation")
        pair.op("aten::stack", at + 1_900, 50)
        pair.op("aten::mm", at + 2_200, 600)
    found = tried(nadi.build_graph(nadi.load_job(*pair.write())), mark="ProfilerStep")
    (of_loader,) = (one for one in found if "DataLoader" in one.about or "data" in one.about)
    assert str(of_loader.change) == change
    assert of_loader.gain_ns == 3 * (2_000_000 if loader == OWN_LOADER else 1_950_000)


@pytest.mark.parametrize(("length", "is_tried"), [(200, True), (700, False)])
def test_gaps_that_functions_fill_are_those_of_the_functions(
    pair: PairWriter, length: int, *, is_tried: bool
) -> None:
    for step in range(3):
        at = 2_000.0 * step
        pair.event(f"ProfilerStep#{step}", at, 2_000, "user_annotation")
        pair.op("aten::mm", at, 1_000)
        pair.event("data.py(3): parse", at + 1_100, length, "python_function")
    found = tried(nadi.build_graph(nadi.load_job(*pair.write())), mark="ProfilerStep")
    assert ("no-gaps" in texts(found)) == is_tried
    assert r"scale ^data\.py\(3\):\ parse$ 0.5" in texts(found)
