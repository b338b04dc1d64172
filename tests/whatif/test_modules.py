"""``in=`` with modules: what it selects, what it says, and what removing layers really does."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nadi
from nadi.graph.event_graph import EventGraph
from nadi.graph.module_tree import PHASES, find_modules, optimizer_parts
from nadi.whatif.selection import select
from tests.conftest import PairWriter

RECORDINGS = Path(__file__).resolve().parents[1] / "recordings"
FOUR, TWO = RECORDINGS / "cpu_mlp4_modules", RECORDINGS / "cpu_mlp2_modules"
CALL = "nn.Module: "
EVALUATION = "autograd::engine::evaluate_function: "


@pytest.fixture(scope="module")
def four() -> EventGraph:
    return nadi.build_graph(nadi.load_job(FOUR))


@pytest.fixture(scope="module")
def device_only() -> EventGraph:
    return nadi.build_graph(nadi.load_job(FOUR / "device_0.json.gz"))


def chosen(graph: EventGraph, text: str) -> set[int]:
    found = select(graph, nadi.whatif.parse_selection(text))
    return set(np.flatnonzero(found).tolist())


def test_forward_backward_and_optimizer(four: EventGraph) -> None:
    found = chosen(four, "in=Sequential_2")
    names = four.op_names
    asked = [
        "aten::addmm", "AddmmBackward0", f"{EVALUATION}AddmmBackward0", "ReluBackward0",
        "torch::autograd::AccumulateGrad", "aten::addcdiv_", "aten::lerp_",
        f"{CALL}Sequential_2", f"{CALL}Linear_2",
    ]  # fmt: skip
    counts = {name: sum(names[op] == name for op in found) for name in asked}
    assert counts == {
        "aten::addmm": 3, "AddmmBackward0": 3, f"{EVALUATION}AddmmBackward0": 3,
        "ReluBackward0": 3, "torch::autograd::AccumulateGrad": 6, "aten::addcdiv_": 6,
        "aten::lerp_": 6, f"{CALL}Sequential_2": 0, f"{CALL}Linear_2": 3,
    }  # fmt: skip


def test_modules_are_disjoint_and_nested(four: EventGraph) -> None:
    layers = [chosen(four, f"in=Sequential_{k}") for k in range(4)]
    assert len(set.union(*layers)) == sum(map(len, layers))
    assert chosen(four, "in=Sequential") == chosen(four, "in=Sequential_[0-3]")
    assert set.union(*layers) < chosen(four, "in=Mlp_0")
    assert chosen(four, "in=Linear_2") < layers[2]
    assert chosen(four, "in=Sequential_2.Linear_2") == chosen(four, "in=Linear_2")


def test_parts_of_names_add_to_what_they_meant_before(four: EventGraph) -> None:
    # no module is named so, but calls of one contain it: their backward belongs to them too
    assert chosen(four, "in=equential_2") == chosen(four, "in=Sequential_2")
    assert chosen(four, "in='Module: Sequential_2'") == chosen(four, "in=Sequential_2")
    assert chosen(four, "in=aten::addmm")  # an operator
    message = "matches none .* nadi run --by module lists modules"
    with pytest.raises(nadi.errors.UsageError, match=message):
        chosen(four, "in=Sequential_20")


def test_parameters_are_updated_in_their_order(four: EventGraph) -> None:
    """AdamW takes one parameter after the other: weight and bias of each Linear."""
    tree = find_modules(four)
    ops = np.flatnonzero((four.op_names == "aten::addcdiv_").to_numpy())
    ops = ops[np.argsort(four.time[2 * ops])]
    paths = [tree.paths[module] for module in tree.module[ops].tolist()]
    linears = [f"Mlp_0.Sequential_{k}.Linear_{k}" for k in range(4)] + ["Mlp_0.Linear_4"]
    assert paths == 3 * [path for path in linears for _ in range(2)]
    assert {PHASES[phase] for phase in tree.phase[ops].tolist()} == {"optimizer"}


def test_each_operator_of_a_section_belongs_to_its_parameter(four: EventGraph) -> None:
    """Those before the first use of a gradient too: a section begins with the step's count."""
    tree = find_modules(four)
    starts = np.flatnonzero((four.op_names == "aten::add_").to_numpy() & (tree.phase == 2))
    ends = np.flatnonzero((four.op_names == "aten::addcdiv_").to_numpy())
    steps = np.sort(four.time[2 * starts])[::2], np.sort(four.time[2 * ends])
    assert steps[0].size == steps[1].size == 30
    by_time = {int(four.time[2 * op]): int(tree.module[op]) for op in (*starts, *ends)}
    for first, last in zip(steps[0].tolist(), steps[1].tolist(), strict=True):
        assert by_time[first] == by_time[last]


def test_parameters_of_no_module_do_not_hide_the_sections_of_others(four: EventGraph) -> None:
    tree = find_modules(four)
    whole = np.flatnonzero(tree.phase == PHASES.index("optimizer"))
    steps = (four.op_names.str.starts_with("Optimizer.step#")).to_numpy()
    accumulates = (four.op_names == "torch::autograd::AccumulateGrad").to_numpy()
    gradients = np.where(accumulates, tree.module, -1)
    last = tree.paths.index("Mlp_0.Linear_4")
    middle = tree.paths.index("Mlp_0.Sequential_1.Linear_1")
    parent = np.array([
        tree.paths.index(path.rpartition(".")[0]) if "." in path else -1 for path in tree.paths
    ])  # fmt: skip
    every = optimizer_parts(four, steps, gradients, parent).module
    assert np.isin(every[whole], np.unique(tree.module[whole])).all()
    unknown = np.isin(gradients, [last, middle])
    some = optimizer_parts(four, steps, np.where(unknown, -1, gradients), parent).module
    np.testing.assert_array_equal(some, np.where(np.isin(every, [last, middle]), -1, every))


def test_what_belongs_to_modules_is_said(four: EventGraph, device_only: EventGraph) -> None:
    counts = "Mlp_0.Sequential_2: forward 36 operators, backward 111 operators, "
    (text,) = nadi.what_if(four, "remove in=Sequential_2").included
    assert text == f"{counts}optimizer 186 operators"
    (text,) = nadi.what_if(device_only, "remove in=Sequential_2").included
    assert text == (
        f"{counts}optimizer: not attributed: the trace does not state which tensors it uses "
        "(a host trace does)"
    )
    changes = ("scale in=ReLU 2", "scale threshold in=ReLU 2", "remove in=aten::mm")
    (text,) = nadi.what_if(four, *changes).included
    paths = [f"Mlp_0.Sequential_{k}.ReLU_{k}" for k in range(3)]
    assert text.startswith(f"{', '.join(paths)} and 1 more: forward 24 operators, ")
    assert text.endswith("optimizer: no operator works on their parameters alone")


def test_removed_layers_as_when_they_are_removed(four: EventGraph) -> None:
    """The real program with two of four layers takes 47 % less."""
    answer = nadi.what_if(four, "remove in=Sequential_[23]")
    real = nadi.what_if(nadi.build_graph(nadi.load_job(TWO)))
    real_gain = answer.measured_ns - real.measured_ns
    assert 0.75 < answer.gain_ns / real_gain < 1.05
    without = nadi.what_if(four, "remove kind=operator in=nn.Module.*Sequential_[23]")
    assert without.gain_ns < answer.gain_ns


def test_annotations_without_modules(pair: PairWriter) -> None:
    outer = pair.op("layers.2", 0, 100, cat="user_annotation")
    pair.op("aten::mm", 10, 80, parent=outer, **{"Sequence number": 5})
    other = pair.op("layers.20", 110, 100, cat="user_annotation")
    pair.op("aten::mm", 120, 80, parent=other, **{"Sequence number": 6})
    pair.op("MmBackward0", 300, 40, **{"Sequence number": 6, "Fwd thread id": 1})
    node = pair.op("MmBackward0", 340, 40, **{"Sequence number": 5, "Fwd thread id": 1})
    pair.op("aten::t", 350, 20, parent=node)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    starts = sorted(int(graph.time[2 * op]) // 1000 for op in chosen(graph, "in=layers.2"))
    assert starts == [10, 340, 350]
    answer = nadi.what_if(graph, "remove in=layers.2")
    # the annotation itself stays, with the 20 us that its thread spends in it besides
    assert answer.gain_ns == 120_000
    assert answer.included == (
        "layers.2: forward 1 operator, backward 2 operators, no optimizer in the trace",
    )


def test_functions_without_modules(pair: PairWriter) -> None:
    """A function is in a file of its own name, and another one in that file, too."""
    penalty, other = "penalty.py(7): Loss.penalty", "penalty.py(30): loss"
    pair.event("penalty.py(1): read", 0, 10, "python_function")  # calls nothing
    for number, name in enumerate((penalty, other, penalty)):
        outer = pair.op(name, 20 + 100 * number, 60, cat="python_function")
        pair.op("aten::pow", 20 + 100 * number, 20, parent=outer, **{"Sequence number": number})
        pair.op("aten::sum", 50 + 100 * number, 30, parent=outer)
        pair.op(f"PowBackward{number}", 500 + 100 * number, 40,
                **{"Sequence number": number, "Fwd thread id": 1})  # fmt: skip
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    starts = sorted(int(graph.time[2 * op]) // 1000 for op in chosen(graph, "in=penalty"))
    assert starts == [20, 50, 220, 250, 500, 700]
    for same in ("in=Loss.penalty", r"in='penalty\.py\(7\): Loss\.penalty'", "in=Loss"):
        assert chosen(graph, same) == chosen(graph, "in=penalty")
    # operators, what lies between two of them in a call, and the backward
    assert nadi.what_if(graph, "remove in=penalty").gain_ns == 2 * (60 + 40) * 1000
    with pytest.raises(nadi.errors.UsageError, match=r"encloses no operation.*by its name, read"):
        chosen(graph, "in=read")


def test_one_operator_for_all_parameters(tmp_path: Path, four: EventGraph) -> None:
    """With foreach an operator works on all parameters: it belongs to what is around them."""
    host, device = (tmp_path / name for name in ("host_0.json.gz", "device_0.json.gz"))
    device.write_bytes((FOUR / "device_0.json.gz").read_bytes())
    content = json.loads(gzip.decompress((FOUR / "host_0.json.gz").read_bytes()))
    gradients = list(_last_gradients(content["nodes"]))
    for node in content["nodes"]:
        if node["name"] == "aten::lerp_":
            node["inputs"] = {"values": [gradients], "shapes": [[[]] * len(gradients)],
                              "types": ["GenericList[Tensor(float)]"],
                              "strides": [[[]] * len(gradients)]}  # fmt: skip
    host.write_bytes(gzip.compress(json.dumps(content).encode()))
    graph = nadi.build_graph(nadi.load_job(tmp_path))
    tree = find_modules(graph)
    assert tree.optimizer == find_modules(four).optimizer
    last = np.flatnonzero((graph.op_names == "aten::lerp_").to_numpy())[-10:]
    assert {tree.paths[module] for module in tree.module[last].tolist()} == {"Mlp_0"}


SPARSE, DENSE, FREED = [[number, storage, 0, 8, 4, "cpu"]
                        for number, storage in ((10, 0), (11, 20), (12, 21))]  # fmt: skip


def test_gradients_of_two_optimizers_of_which_one_is_sparse(pair: PairWriter) -> None:
    """Both step after one backward; what a sparse accumulation frees is used by either again."""

    def uses(name: str, at: int, parent: int, given: list[Any], made: list[Any]) -> None:
        number = pair.op(name, at, 5, parent=parent)
        sides = {"inputs": given, "outputs": made}
        pair.nodes[number - 1] |= {
            side: {"values": ids, "shapes": [[8]] * len(ids), "types": ["Tensor(float)"] * len(ids),
                   "strides": [[1]] * len(ids)}
            for side, ids in sides.items()
        }  # fmt: skip

    for step in range(2):
        at = 200 * step
        for place, made in enumerate([[SPARSE, FREED], [DENSE]]):
            around = pair.op("torch::autograd::AccumulateGrad", at + 20 * place, 10)
            uses("aten::detach", at + 20 * place + 2, around, [], made)
        for place, given in enumerate([[SPARSE], [DENSE, FREED]]):
            start = at + 60 + 50 * place
            around = pair.op(f"Optimizer.step#{'ab'[place]}", start, 40)
            uses(f"aten::of_{place}", start + 10, around, given, [])
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    steps = graph.op_names.str.starts_with("Optimizer.step#").to_numpy()
    grads = np.flatnonzero((graph.op_names == "torch::autograd::AccumulateGrad").to_numpy())
    grads = grads[np.argsort(graph.time[2 * grads])]
    gradients = np.full(graph.num_ops, -1, dtype=np.int64)
    gradients[grads] = [0, 1, 0, 1]
    found = optimizer_parts(graph, steps, gradients, np.array([-1, -1])).module
    for place in range(2):
        ops = np.flatnonzero((graph.op_names == f"aten::of_{place}").to_numpy())
        assert found[ops].tolist() == [place, place]


def _last_gradients(nodes: list[dict[str, Any]]) -> Iterator[Any]:
    """Give the tensors that the last step's accumulations of gradients return."""
    accumulations = {n["id"] for n in nodes if n["name"] == "torch::autograd::AccumulateGrad"}
    detached = [n for n in nodes if n["name"] == "aten::detach" and n["ctrl_deps"] in accumulations]
    yield from (n["outputs"]["values"][0] for n in detached[-10:])


def test_frames_that_wait_for_the_backward_say_nothing_of_the_machine() -> None:
    compared = nadi.bottlenecks.diff(TWO, FOUR)
    assert (compared.speed.host, compared.speed.device) == (1.0, 1.0)
    first = compared.path.row(0, named=True)
    assert first["name"] == "aten::mm"
    assert first["cause"] == "called more"
