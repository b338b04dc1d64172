"""Recordings of others: a replay neither touches files nor leaves the memory of its tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nadi.errors import UsageError
from nadi.pytorch import OperatorChoice, replay
from nadi.pytorch.rerunning.argument_rules import SAFE_OPERATORS, STRINGS

from .foreign_traces import Given, float_tensor, index_tensor, write_calls

torch = pytest.importorskip("torch")

MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
FINE = (MM, [float_tensor(1, 4, 4), float_tensor(2, 4, 4)], [float_tensor(3, 4, 4)])
FROM_FILE = (
    "aten::from_file(str filename, bool? shared=None, int? size=0, *, ScalarType? dtype=None) -> "
    "Tensor"
)
FILL = "aten::fill_.Scalar(Tensor(a!) self, Scalar value) -> Tensor(a!)"
LOSS_BACKWARD = (
    "aten::nll_loss_backward(Tensor grad_output, Tensor self, Tensor target, Tensor? weight, int "
    "reduction, SymInt ignore_index, Tensor total_weight) -> Tensor"
)
EMBEDDING_BACKWARD = (
    "aten::embedding_dense_backward(Tensor grad_output, Tensor indices, SymInt num_weights, "
    "SymInt padding_idx, bool scale_grad_by_freq) -> Tensor"
)
ADD = "aten::add_.Scalar(Tensor(a!) self, Scalar other, Scalar alpha=1) -> Tensor(a!)"
GELU = 'aten::gelu(Tensor self, *, str approximate="none") -> Tensor'


def left_out(folder: Path, *calls: Any, allow: tuple[str, ...] = ()) -> dict[str, str]:
    """Replay a call that can be made, and others; return those that were left out."""
    choice = OperatorChoice(allowed=allow)
    done = replay(write_calls(folder, [FINE, *calls]), repeats=1, operators=choice)
    return {one.name: one.reason for one in (*done.skipped, *done.replaced)}


@pytest.mark.parametrize("allow", [(), ("aten::from_file",)])
def test_files_are_written_only_if_the_user_says_so(tmp_path: Path, allow: tuple[str, ...]) -> None:
    file, mapped = tmp_path / "file", float_tensor(9, 16)
    file.write_bytes(bytes(64))
    calls = [(FROM_FILE, [str(file), True, 16, 6], [mapped]), (FILL, [mapped, 1.0], [mapped])]
    found = left_out(tmp_path / "traces", *calls, allow=allow)
    assert (file.read_bytes() == bytes(64)) is not bool(allow)
    assert ("aten::from_file" in found) is not bool(allow)


def test_texts_are_those_of_enumerations(tmp_path: Path) -> None:
    whole, out = float_tensor(4, 8), float_tensor(5, 8)
    found = left_out(tmp_path / "a", (GELU, [whole, "/etc/passwd"], [out]))
    assert found == {"aten::gelu": "its argument approximate is not what the operator takes"}
    assert not left_out(tmp_path / "b", (GELU, [whole, "tanh"], [out]))


@pytest.mark.parametrize(
    ("schema", "inputs"),
    [
        ("aten::relu(str filename) -> Tensor", ["/etc/passwd"]),
        ("aten::relu(Tensor self, str filename) -> Tensor", [float_tensor(4, 8), "x"]),
        ("aten::zeros(int[] size, *, int layout) -> Tensor", [[8], 1]),
        ("aten::zeros(int[] size, *, int lambda) -> Tensor", [[8], 1]),
        ("aten::zeros(int[] size, *, Device device) -> Tensor", [[8], Given("mps:0", "Device")]),
        ("aten::zeros(int[] size, *, int dtype) -> Tensor", [[8], 999]),
        ("aten::relu.nothing(Tensor self) -> Tensor", [float_tensor(4, 8)]),
        ("mine::relu(Tensor self) -> Tensor", [float_tensor(4, 8)]),
        ("aten::__class__(Tensor self) -> Tensor", [float_tensor(4, 8)]),
    ],
)
def test_schemas_that_are_not_those_of_this_torch(
    tmp_path: Path, schema: str, inputs: list[Any]
) -> None:
    assert len(left_out(tmp_path / "a", (schema, inputs, [float_tensor(5, 8)]))) == 1


@pytest.mark.parametrize(
    "call",
    [
        (MM, [float_tensor(4, 2**40, 1), float_tensor(5, 1, 1)], [float_tensor(6, 2**40, 1)]),
        ("aten::relu(Tensor self) -> Tensor", [float_tensor(4, 2, strides=[2**61])],
         [float_tensor(5, 2)]),
        ("aten::relu(Tensor self) -> Tensor", [float_tensor(4, 2, offset=-8)],
         [float_tensor(5, 2)]),
        ("aten::relu(Tensor self) -> Tensor", [float_tensor(4, -2)], [float_tensor(5, 2)]),
        ("aten::zeros(SymInt[] size) -> Tensor", [[2**50]], [float_tensor(5, 2)]),
        ("aten::add.Tensor(Tensor self, Tensor other) -> Tensor",
         [float_tensor(4, 2**21, 1), float_tensor(5, 1, 2**21)], [float_tensor(6, 2)]),
        ("aten::arange(Scalar end) -> Tensor", [2**45], [index_tensor(5, 2)]),
    ],
)  # fmt: skip
def test_sizes_that_no_memory_has(tmp_path: Path, call: Any) -> None:
    assert len(left_out(tmp_path / "a", call)) == 1


def test_tensors_that_are_there_before_have_room_together(tmp_path: Path) -> None:
    gibibyte = 2**28
    calls = [
        ("aten::relu(Tensor self) -> Tensor", [float_tensor(100 + k, gibibyte)],
         [float_tensor(90_000 + k, gibibyte)])
        for k in range(4000)
    ]  # fmt: skip
    with pytest.raises(UsageError, match=r"there before the replay need .* TiB"):
        left_out(tmp_path / "a", *calls)


@pytest.mark.parametrize(
    ("schema", "inputs", "outputs"),
    [  # each wrote or read outside of its memory, or ended the process
        (LOSS_BACKWARD, [float_tensor(4, 3), float_tensor(5, 3, 5), index_tensor(6, 3), None, 0,
                         -100, float_tensor(7)], [float_tensor(8, 3, 5)]),
        (EMBEDDING_BACKWARD, [float_tensor(4, 3, 4), index_tensor(6, 3), 5, -1, True],
         [float_tensor(8, 5, 4)]),
        (("aten::max_pool2d_with_indices_backward(Tensor grad_output, Tensor self, int[2] "
         "kernel_size, int[2] stride, int[2] padding, int[2] dilation, bool ceil_mode, Tensor "
         "indices) -> Tensor"),
         [float_tensor(4, 1, 1, 2, 2), float_tensor(5, 1, 1, 4, 4), [2, 2], [2, 2], [0, 0], [1, 1],
          False, index_tensor(6, 1, 1, 2, 2)], [float_tensor(8, 1, 1, 4, 4)]),
    ],
)  # fmt: skip
def test_indices_that_a_call_has_changed(
    tmp_path: Path, schema: str, inputs: list[Any], outputs: list[Any]
) -> None:
    index = next(one for one in inputs if isinstance(one, Given) and one.kind.endswith("long int)"))
    name = schema.partition("(")[0]
    found = left_out(tmp_path / "a", (ADD, [index, 10**7], [index]), (schema, inputs, outputs))
    assert found == {name: "its indices may lie outside of what they index"}
    found = left_out(tmp_path / "b", (schema, inputs, outputs), (ADD, [index, 10**7], [index]))
    assert name in found  # the next repetition would see it
    hidden = index._replace(value=[7777, 888, *index.value[2:]])  # a view of it, as another memory
    view = "aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)"
    found = left_out(
        tmp_path / "c", (schema, inputs, outputs), (view, [index, index.shape], [hidden]),
        (ADD, [hidden, 10**7], [hidden]),
    )  # fmt: skip
    assert name in found


@pytest.mark.parametrize("call", [0, 1])
def test_indices_that_stay_below_what_they_index_are_replayed(tmp_path: Path, call: int) -> None:
    calls = [
        (LOSS_BACKWARD, [float_tensor(4, 3), float_tensor(5, 3, 5), index_tensor(6, 3), None, 0,
                         -100, float_tensor(7)], [float_tensor(8, 3, 5)]),
        (EMBEDDING_BACKWARD, [float_tensor(4, 3, 4), index_tensor(6, 3), 5, -1, True],
         [float_tensor(8, 5, 4)]),
    ]  # fmt: skip
    assert not left_out(tmp_path / "a", calls[call])


REMAINDER = "aten::remainder.Scalar(Tensor self, Scalar other) -> Tensor"
CLAMP = "aten::clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor"


@pytest.mark.parametrize(
    ("schema", "bounds", "fits"),
    [
        (REMAINDER, [5], True), (REMAINDER, [6], False), (REMAINDER, [-5], False),
        (REMAINDER, [2**32 - 5], False),  # -5 where indices have 32 bits
        (CLAMP, [0, 4], True), (CLAMP, [0, 5], False), (CLAMP, [-1, 4], False),
        (CLAMP, [None, 4], False),
    ],
)  # fmt: skip
def test_labels_that_are_cut_to_their_classes(
    tmp_path: Path, schema: str, bounds: list[Any], fits: bool
) -> None:
    """As in ``labels % 5``: whatever the labels were, their classes exist after it."""
    name, labels = LOSS_BACKWARD.partition("(")[0], index_tensor(6, 3)
    inputs = [float_tensor(4, 3), float_tensor(5, 3, 5), labels, None, 0, -100, float_tensor(7)]
    found = left_out(
        tmp_path / "a", (ADD, [index_tensor(9, 3), 10**7], [index_tensor(9, 3)]),
        (schema, [index_tensor(9, 3), *bounds], [labels]),
        (LOSS_BACKWARD, inputs, [float_tensor(8, 3, 5)]),
    )  # fmt: skip
    assert found == ({} if fits else {name: "its indices may lie outside of what they index"})


ARANGE = (
    "aten::arange.start_step(Scalar start, Scalar end, Scalar step=1, *, ScalarType? dtype=None) "
    "-> Tensor"
)
BAG = (
    "aten::_embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq="
    "False, int mode=0, bool sparse=False, Tensor? per_sample_weights=None, bool "
    "include_last_offset=False, int padding_idx=-1) -> (Tensor, Tensor, Tensor, Tensor)"
)
BAG_BACKWARD = (
    "aten::_embedding_bag_backward(Tensor grad, Tensor indices, Tensor offsets, Tensor offset2bag, "
    "Tensor bag_size, Tensor maximum_indices, SymInt num_weights, bool scale_grad_by_freq, int "
    "mode, bool sparse, Tensor? per_sample_weights, int padding_idx=-1) -> Tensor"
)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, ""),
        ({1: index_tensor(61, 8)}, "indices"),
        ({2: index_tensor(71, 4)}, "indices"),  # offsets that the forward has not judged
        ({6: 9}, "indices"),
        ({9: True}, "it gives a sparse tensor"),
    ],
)
def test_backwards_of_bags_take_what_their_forward_took(
    tmp_path: Path, changed: dict[int, Any], reason: str
) -> None:
    """It finds the bag of each index by offsets, since the forward of a sum does not give it."""
    indices, offsets = index_tensor(6, 8), index_tensor(7, 4)
    made = [float_tensor(30, 4, 16), index_tensor(31, 0), index_tensor(32, 4), index_tensor(33, 4)]
    given = [float_tensor(34, 4, 16), indices, offsets, *made[1:], 10, False, 0, False, None, -1]
    found = left_out(
        tmp_path / "a", (ARANGE, [0, 8, 2, 4], [offsets]),
        (BAG, [float_tensor(5, 10, 16), indices, offsets, False, 0, False, None, False, -1], made),
        (BAG_BACKWARD, [changed.get(at, one) for at, one in enumerate(given)],
         [float_tensor(8, 10, 16)]),
    )  # fmt: skip
    refused = found.pop("aten::_embedding_bag_backward", "")
    assert reason in refused
    assert bool(reason) is bool(refused)
    assert not found


SMALL, LARGE = float_tensor(20, 1), float_tensor(21, 2, 1000, 2)
_NORM = (
    "aten::native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, "
    "Tensor? running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)"
)
_SGD = (
    "aten::_fused_sgd_(Tensor(a!)[] self, Tensor(b!)[] grads, Tensor(c!)[] momentum_buffer_list, *,"
    " float weight_decay, float momentum, float lr, float dampening, bool nesterov, bool maximize,"
    " bool is_first_step, Tensor? grad_scale=None, Tensor? found_inf=None) -> ()"
)


@pytest.mark.parametrize(
    ("schema", "inputs", "outputs"),
    [
        (_NORM, [LARGE, None, None, SMALL, float_tensor(22, 1), True, 0.1, 1e-5],
         [LARGE, float_tensor(23, 1000), float_tensor(24, 1000)]),
        (_SGD, [[float_tensor(30, 1000)], [SMALL], [float_tensor(31, 1000)], 0.0, 0.9, 0.1, 0.0,
                False, False, False], []),
        (_SGD, [[float_tensor(30, 1000, strides=[0])], [float_tensor(32, 1000, strides=[0])],
                [float_tensor(31, 1000, strides=[0])], 0.0, 0.9, 0.1, 0.0, False, False, False],
         []),
        (("aten::_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType "
         "input_dtype) -> Tensor"), [float_tensor(4, 1, 1), float_tensor(5, 100, 100), 1, 6],
         [float_tensor(6, 100, 100)]),
        ("aten::where(Tensor condition) -> Tensor[]", [float_tensor(4, 8)], [[index_tensor(5, 8)]]),
        ("aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor",
         [float_tensor(4, 8), [Given([5, 6, 0, 8, 1, "cpu"], "Tensor(bool)", [8], [1])]],
         [float_tensor(9, 8)]),
        ("aten::resize_(Tensor(a!) self, SymInt[] size) -> Tensor(a!)", [SMALL, [4]],
         [float_tensor(20, 4, number=77)]),
        (("aten::set_.source_Tensor_storage_offset(Tensor(a!) self, Tensor source, SymInt "
         "storage_offset, SymInt[] size, SymInt[] stride=[]) -> Tensor(a!)"),
         [SMALL, LARGE, 10**6, [4], [1]], [SMALL]),
    ],
)  # fmt: skip
def test_operands_that_do_not_belong_together(
    tmp_path: Path, schema: str, inputs: list[Any], outputs: list[Any]
) -> None:
    found = left_out(tmp_path / "a", (schema, inputs, outputs))
    assert list(found) == [schema.partition("(")[0].partition(".")[0]]


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_what_changes_shapes_in_place_is_no_call(tmp_path: Path) -> None:
    """What came after it would have other shapes than those that were judged."""
    whole = float_tensor(4, 2, 8)
    out = "aten::relu.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)"
    found = left_out(
        tmp_path / "a", (out, [float_tensor(6, 4, 4), whole], [float_tensor(4, 4, 4, number=5)])
    )
    assert found == {"aten::relu": "it changes the shape of what it is given"}


def test_a_recording_without_a_safe_operator_is_an_error(tmp_path: Path) -> None:
    folder = write_calls(tmp_path / "a", [(FROM_FILE, [str(tmp_path), True, 1, 6], [SMALL])])
    with pytest.raises(UsageError, match="that can be replayed"):
        replay(folder)


def test_all_safe_operators_are_operators_on_tensors_and_numbers() -> None:
    """By the schemas of this PyTorch: what is in the list takes neither files nor handles."""
    kinds = {"TensorType", "IntType", "FloatType", "BoolType", "NumberType", "DeviceObjType",
             "StringType", "GeneratorType", "SymIntType", "SymBoolType", "NoneType"}  # fmt: skip

    def leaves(kind: Any) -> set[str]:
        if kind.kind() in ("OptionalType", "ListType"):
            return leaves(kind.getElementType())
        if kind.kind() == "TupleType":
            return {leaf for one in kind.elements() for leaf in leaves(one)}
        return {kind.kind()}

    known, texts = set(), set()
    for schema in torch._C._jit_get_all_schemas():
        if schema.name not in SAFE_OPERATORS:
            continue
        arguments = [*schema.arguments, *schema.returns]
        if any(leaves(one.type) - kinds for one in arguments):
            continue  # an overload of TorchScript for lists and dictionaries: its types fit nothing
        known.add(schema.name)
        if any("StringType" in leaves(one.type) for one in schema.returns):
            continue  # and of texts
        texts |= {one.name for one in schema.arguments if leaves(one.type) == {"StringType"}}
    assert len(SAFE_OPERATORS - known) < 0.02 * len(SAFE_OPERATORS), SAFE_OPERATORS - known
    assert not any(("file" in one or "path" in one) for one in texts & set(STRINGS))
