"""Reading ASTRA-sim 1.0's text workloads."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

import nadi
from nadi.cli import main
from nadi.errors import FormatError
from nadi.files.astra_sim_text import PARALLELISMS, decode, looks_like
from nadi.files.files import read_file
from nadi.simulation.alone.collective import collective_time
from nadi.trace.schema import NODE_KINDS
from nadi.trace.trace import Trace
from nadi.trace.validate import validate_trace
from tests.reference.chakra_messages import attribute_value, read_messages

# name, reserved; forward, input gradient, weight gradient: time, communication, bytes; update
TWO_LAYERS = """
first  -1  1 ALLGATHER 10  2 ALLREDUCE 20  3 REDUCESCATTER 30  0
last   -1  4 ALLTOALL  40  5 ALLTOALL  50  6 ALLREDUCE     60  7
"""


def read_text(folder: Path, text: str | bytes) -> Trace:
    path = folder / "workload.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return decode(read_file(path))


def short_rows(trace: Trace) -> list[str]:
    """Write each node as ``name <- rows it waits for``, without the words all names begin with."""
    waits: list[list[int]] = [[] for _ in range(trace.nodes.height)]
    for src, dst in trace.deps.select("src", "dst").iter_rows():
        waits[dst].append(src)
    names = [
        name.removeprefix("COMP_NODE_").removeprefix("COMM_COLL_NODE_")
        for name in trace.nodes["name"].to_list()
    ]
    return [
        f"{name} <- {' '.join(map(str, rows))}".rstrip()
        for name, rows in zip(names, waits, strict=True)
    ]


def test_columns_of_a_data_parallel_workload(tmp_path: Path) -> None:
    trace = read_text(tmp_path, f"DATA\n2{TWO_LAYERS}")
    assert short_rows(trace) == [
        "first_FWD <-",
        "last_FWD <- 0",
        "last_BWD_WG <- 1",
        "last_ALLREDUCE <- 2",
        "last_BWD_IG <- 2",
        "first_BWD_WG <- 4",
        "first_REDUCESCATTER <- 5",
    ]
    nodes = trace.nodes
    assert nodes["id"].to_list() == list(range(7))
    assert nodes["kind"].to_list() == ["COMP", "COMP", "COMP", "COMM_COLL"] + ["COMP"] * 2 + [
        "COMM_COLL"
    ]
    assert nodes["duration"].to_list() == [1000, 4000, 6000, -1, 5000, 3000, -1]
    assert nodes["comm_type"].to_list()[3::3] == ["all_reduce", "reduce_scatter"]
    assert nodes["comm_bytes"].to_list() == [-1, -1, -1, 60, -1, -1, 30]
    assert not nodes["is_cpu"].any()
    assert set(trace.deps["kind"]) == {"data"}
    assert trace.attributes.of(3) == {"comm_type": 0, "comm_size": 60}
    assert trace.attributes.of(6) == {"comm_type": 7, "comm_size": 30}
    assert trace.attributes.of(0) == {}
    assert trace.attributes.of(-1)["input_file"] == f"DATA\n2{TWO_LAYERS}"
    # four communications that data parallelism does not have, and one time to update
    assert dict(trace.issues.select("code", "count").iter_rows()) == {
        "astra.communication-left-out": 4,
        "astra.update-time": 1,
    }


MODEL_PASS = [
    "first_FWD <-",
    "first_ALLGATHER <- 0",
    "last_FWD <- 1",
    "last_ALLTOALL <- 2",
    "last_BWD_IG <- 3",
    "last_ALLTOALL <- 4",
    "last_BWD_WG <- 4",
    "first_BWD_IG <- 6 5",
    "first_BWD_WG <- 7",
]
HYBRID_PASS = [
    *MODEL_PASS[:7],
    "last_ALLREDUCE <- 6",
    "first_BWD_IG <- 6 5",
    "first_BWD_WG <- 8",
    "first_REDUCESCATTER <- 9",
]


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [
        ("MODEL", MODEL_PASS),
        ("HYBRID_MODEL_DATA", HYBRID_PASS),
        ("HYBRID_DATA_MODEL", [*HYBRID_PASS[:5], "last_IG_COMM__ALLTOALL <- 4", *HYBRID_PASS[6:]]),
        ("DISTRIBUTED_INFERENCE", MODEL_PASS[:4]),
        ("MICRO", ["first_REDUCESCATTER <-", "last_ALLREDUCE <-"]),
        (
            "HYBRID_TRANSFORMER",
            [
                *MODEL_PASS[:6],
                "last_BWD_WG <- 5",  # waits for the exchange
                "last_ALLREDUCE <- 6",
                "first_BWD_IG <- 6",
                "first_ALLREDUCE <- 8",  # the first layer's too
                "first_BWD_WG <- 9",
                "first_REDUCESCATTER <- 10",
            ],
        ),
    ],
)
def test_nodes_of_a_parallelism(tmp_path: Path, parallelism: str, expected: list[str]) -> None:
    trace = read_text(tmp_path, f"{parallelism}\n2{TWO_LAYERS}")
    assert short_rows(trace) == expected
    assert validate_trace(trace).is_empty()


def test_none_is_no_node_and_the_next_waits_for_what_came_before(tmp_path: Path) -> None:
    layers = "a -1 1 NONE 0 1 NONE 0 1 NONE 0 0\nb -1 1 NONE 0 1 NONE 0 1 NONE 0 0"
    chain = ["a_FWD <-", "b_FWD <- 0", "b_BWD_IG <- 1", "b_BWD_WG <- 2", "a_BWD_IG <- 3",
             "a_BWD_WG <- 4"]  # fmt: skip
    for parallelism in ("MODEL", "HYBRID_DATA_MODEL", "HYBRID_TRANSFORMER"):
        assert short_rows(read_text(tmp_path, f"{parallelism}\n2\n{layers}")) == chain
    assert short_rows(read_text(tmp_path, f"MICRO\n2\n{layers}")) == []


def test_a_layer_of_its_own_parallelism_communicates_where_that_does(tmp_path: Path) -> None:
    layers = (
        "a -1 1 ALLGATHER 9 1 ALLREDUCE 9 1 ALLREDUCE 9 0 DATA\n"
        "b -1 1 ALLGATHER 9 1 ALLREDUCE 9 1 ALLREDUCE 9 0 MODEL\n"
        "c -1 1 ALLGATHER 9 1 ALLREDUCE 9 1 ALLREDUCE 9 0 HYBRID_MODEL_DATA\n"
    )
    trace = read_text(tmp_path, f"HYBRID_CUSTOMIZED\n3\n{layers}")
    assert short_rows(trace) == [
        "a_FWD <-",
        "b_FWD <- 0",
        "b_ALLGATHER <- 1",
        "c_FWD <- 2",
        "c_ALLGATHER <- 3",
        "c_BWD_IG <- 4",
        "c_ALLREDUCE <- 5",
        "c_BWD_WG <- 5",
        "c_ALLREDUCE <- 7",
        "b_BWD_IG <- 7 6",
        "b_ALLREDUCE <- 9",
        "b_BWD_WG <- 9",
        "a_BWD_IG <- 11 10",
        "a_BWD_WG <- 12",
        "a_ALLREDUCE <- 13",
    ]
    left_out = trace.issues.filter(code="astra.communication-left-out")
    assert left_out["count"].to_list() == [3]


def test_layers_between_a_checkpoint_and_the_initiating_layer_go_forward_again(
    tmp_path: Path,
) -> None:
    layers = "".join(f"{name} -1 1 NONE 0 1 NONE 0 1 NONE 0 0\n" for name in "abcd")
    header = "HYBRID_TRANSFORMER_FWD_IN_BCKWD checkpoints: 1 1 checkpoint_initiates: 1 3"
    trace = read_text(tmp_path, f"{header}\n4\n{layers}")
    assert short_rows(trace)[3:8] == [
        "d_FWD <- 2",
        "b_FWD_IN_BCKWD <- 3",
        "c_FWD_IN_BCKWD <- 4",
        "d_BWD_IG <- 5",
        "d_BWD_WG <- 6",
    ]


def test_dlrm_exchanges_embeddings_beside_the_bottom_layers(tmp_path: Path) -> None:
    layers = (
        "emb -1 1 ALLTOALL 9 1 ALLTOALL 8 1 NONE 0 0\n"
        "bottom -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 7 0\n"
        "top -1 1 NONE 0 1 NONE 0 1 NONE 0 0\n"
    )
    expected = [
        "emb_FWD <-",
        "emb_ALLTOALL <- 0",
        "bottom_FWD <- 0 1",
        "top_FWD <- 2",
        "top_BWD_WG <- 3",
        "top_BWD_IG <- 4",
        "emb_ALLTOALL <- 5",
        "bottom_BWD_WG <- 5",
        "bottom_ALLREDUCE <- 7",
        "bottom_BWD_IG <- 7",
        "emb_BWD_WG <- 9 6",
    ]
    for header in ("HYBRID_DLRM 1", "HYBRID_DLRM_ENHANCED DLRM_LAST_BOTTOM_LAYER: 1"):
        trace = read_text(tmp_path, f"{header}\n3\n{layers}")
        assert short_rows(trace) == expected
        assert trace.nodes["comm_bytes"].to_list()[1] == 9
        assert trace.nodes["comm_bytes"].to_list()[6] == 8


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_line_ends_blank_lines_and_tabs_do_not_matter(tmp_path: Path, ends: str) -> None:
    plain = read_text(tmp_path, f"MODEL\n2{TWO_LAYERS}")
    text = f"\nMODEL\t\t\n\n2 \t\n{TWO_LAYERS.replace(' ', chr(9))}\n\n".replace("\n", ends)
    other = read_text(tmp_path, text)
    assert short_rows(other) == short_rows(plain)
    assert ends == "\n" or "\r" not in other.attributes.of(-1)["input_file"]


GOOD = "a -1 1 NONE 0 1 NONE 0 1 NONE 0 0"
DLRM = "\n".join([GOOD] * 3)
CHECKPOINTS = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"


@pytest.mark.parametrize(
    ("text", "where", "met"),
    [
        ("", "", "the file has nothing"),
        (" \n\n", "", "the file has nothing"),
        ("DATA\n", "", "only one line"),
        (f"SIDEWAYS\n1\n{GOOD}", "line 1", "unknown parallelism 'SIDEWAYS'"),
        (f"DATA\nmany\n{GOOD}", "line 2", "the number of layers is 'many'"),
        (f"DATA\n1 2\n{GOOD}", "line 2", "2 words"),
        (f"DATA\n-1\n{GOOD}", "line 2", "the number of layers is -1"),
        ("DATA\n0\n", "line 2", "0 layers"),
        (f"DATA\n2\n{GOOD}", "line 3", "1 layers, but line 2 states 2"),
        (f"DATA\n1\n{GOOD}\n\n{GOOD}", "line 5", "2 layers, but line 2 states 1"),
        ("DATA\n1\na -1 1 NONE 0", "line 3", "5 fields"),
        (f"DATA\n1\n{GOOD} MODEL", "line 3", "13 fields"),
        (f"HYBRID_CUSTOMIZED\n1\n{GOOD}", "line 3", "12 fields"),
        (f"HYBRID_CUSTOMIZED\n1\n{GOOD} X", "line 3", "unknown parallelism of a layer 'X'"),
        (f"HYBRID_CUSTOMIZED\n1\n{GOOD} HYBRID_CUSTOMIZED", "line 3", "unknown parallelism of a"),
        (f"DATA\n1\n{GOOD.replace('-1', 'x')}", "line 3", "the reserved number is 'x'"),
        (f"DATA\n1\n{GOOD.replace('1 NONE', '1.5 NONE')}", "line 3", "'1.5'; it must be a whole"),
        (f"DATA\n1\n{GOOD.replace('1 NONE', '1_0 NONE')}", "line 3", "'1_0'"),
        (f"DATA\n1\n{GOOD.replace('1 NONE', '² NONE')}", "line 3", "'²'"),
        (f"DATA\n1\n{GOOD.replace('1 NONE', '-4 NONE')}", "line 3", "is -4; it must be 0 or more"),
        (f"DATA\n1\n{GOOD.replace('1 NONE', '9223372036854776 NONE')}", "line 3", "the maximum"),
        (f"DATA\n1\n{GOOD.replace('1 NONE', '9' * 9999 + ' NONE')}", "line 3", "the maximum"),
        (f"DATA\n1\n{GOOD.replace('NONE 0', f'NONE {2**63}')}", "line 3", "the maximum"),
        (f"DATA\n1\n{GOOD.replace('NONE 0', 'NONE -1')}", "line 3", "bytes is -1"),
        (f"DATA\n1\n{GOOD[:-1]}soon", "line 3", "the update time is 'soon'"),
        (f"DATA\n1\n{GOOD.replace('NONE', 'ALLSORTS')}", "line 3", "communication 'ALLSORTS'"),
        (b"DATA\n1\n\xff", "line 3", "not valid UTF-8: byte 0xff"),
        (f"DATA\n1\n{GOOD}\0", "line 3", "a NUL byte"),
        (f"HYBRID_DLRM\n3\n{DLRM}", "line 1", "0 numbers after HYBRID_DLRM"),
        (f"HYBRID_DLRM two\n3\n{DLRM}", "line 1", "the last bottom layer is 'two'"),
        (f"HYBRID_DLRM 2\n3\n{DLRM}", "line 1", "the last bottom layer is 2 of 3"),
        (f"HYBRID_DLRM 0\n3\n{DLRM}", "line 1", "the last bottom layer is 0 of 3"),
        (f"{CHECKPOINTS}\n3\n{DLRM}", "line 1", "'checkpoints:' is missing"),
        (f"{CHECKPOINTS} checkpoints: 2 1\n3\n{DLRM}", "line 1", "1 numbers after 'checkpoints:'"),
        (f"{CHECKPOINTS} checkpoints:\n3\n{DLRM}", "line 1", "after 'checkpoints:' is ''"),
        (f"{CHECKPOINTS} checkpoints: 1 3 checkpoint_initiates: 0\n3\n{DLRM}", "line 1",
         "the maximum"),
        (f"{CHECKPOINTS} checkpoints: 1 2 checkpoint_initiates: 1 1\n3\n{DLRM}", "line 1",
         "no layer up to it is a checkpoint"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_error(
    tmp_path: Path, text: str | bytes, where: str, met: str
) -> None:
    with pytest.raises(FormatError) as caught:
        read_text(tmp_path, text)
    assert caught.value.where.endswith(f"workload.txt, {where}" if where else "workload.txt")
    assert met in caught.value.what
    assert caught.value.remedy
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


words = st.sampled_from(
    ["a", "-1", "1", "NONE", "0", "ALLREDUCE", "\n", " ", "2", "DATA", "\r", "\x1c", "\x0b", "é"]
)


@given(
    st.sampled_from(PARALLELISMS),
    st.lists(words, max_size=6).map(" ".join),
    st.lists(st.tuples(st.integers(0, 60), words), max_size=4),
)
def test_any_text_is_a_trace_or_one_clear_error(
    tmp_path_factory: pytest.TempPathFactory,
    parallelism: str,
    options: str,
    changes: list[tuple[int, str]],
) -> None:
    text = list(f"{parallelism} {options}\n2{TWO_LAYERS}".split(" "))
    for place, word in changes:
        text[place % len(text)] = word
    with contextlib.suppress(FormatError):
        trace = read_text(tmp_path_factory.getbasetemp(), " ".join(text))
        assert validate_trace(trace).is_empty()


def test_a_number_may_have_zeros_before_it(tmp_path: Path) -> None:
    layer = f"a -1 {'0' * 30}7 NONE 0 1 NONE 0 1 NONE +0 0"
    assert read_text(tmp_path, f"DATA\n1\n{layer}").column("duration").tolist() == [7000, 1000]


@pytest.mark.parametrize("parallelism", PARALLELISMS)
def test_the_format_is_told_by_its_first_lines(parallelism: str) -> None:
    assert looks_like(f"{parallelism} 4\t\t\r\n8\t\r\nlayer".encode())
    assert looks_like(f"\ufeff{parallelism}\n1".encode())
    assert looks_like(f"{parallelism}\nmany".encode())  # to be refused with a clear error


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"SIDEWAYS\n12\n", True),
        (b"", False),
        (b'{"schema": 1}', False),
        (b"SIDEWAYS\nmany", False),
        (b"DATA,1\n2", False),
        (b"data\n2", False),
        (b"\x00\x01DATA\n2", False),
        (b"A" * 100_000, False),
        (b"\n" * 100_000, False),
    ],
)
def test_other_content_is_not_taken_for_it(head: bytes, expected: bool) -> None:
    assert looks_like(head) == expected


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    "name",
    [
        "microAllReduce",
        "Resnet50_DataParallel",
        "MLP_ModelParallel",
        "MLP_HybridParallel_Data_Model",
        "MLP_HybridParallel_Model_Data",
        "DLRM_HybridParallel",
    ],
)
def test_the_converters_own_messages(shared_traces: Path, name: str, rank: int) -> None:
    folder = shared_traces.parent / "golden" / "chakra" / "text_converter"
    trace = decode(read_file(folder / f"{name}.txt"))
    metadata, messages = read_messages((folder / f"{name}.{rank}.et").read_bytes())
    marked, *stated = typed_attributes(trace, -1)
    assert marked == ("version", "operand", metadata.version)
    assert stated == [(a.name, *attribute_value(a)) for a in metadata.attr]
    assert trace.nodes.height == len(messages)
    waits: list[list[int]] = [[] for _ in messages]
    for src, dst in trace.deps.select("src", "dst").iter_rows():
        waits[dst].append(src)
    # the converter numbers rank 1 on from rank 0
    first = rank * len(messages)
    rows = trace.nodes.select("id", "name", "kind", "duration").iter_rows()
    for (node, name_here, kind, duration), message in zip(rows, messages, strict=True):
        assert node == message.id - first
        assert name_here == message.name
        assert kind == NODE_KINDS[message.type]
        assert max(duration, 0) == message.duration_micros * 1000
        assert waits[node] == [wait - first for wait in message.data_deps]
        assert not message.ctrl_deps
        assert not message.start_time_micros
        assert typed_attributes(trace, node) == [
            (a.name, *attribute_value(a)) for a in message.attr
        ]


def typed_attributes(trace: Trace, node: int) -> list[tuple[str, str, Any]]:
    attributes = trace.attributes
    types = attributes.table()["type"]
    names = attributes.names
    return [
        (names[attributes.name[row]], types[row], attributes.python_value(row))
        for row in attributes.rows_of(node)
    ]


SIMAI = """HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 checkpoints: 0 \
checkpoint_initiates: 0
2
norm -1 5 BROADCAST 16 1 NONE 0 1 ALLGATHER_DP_EP 24 100
mlp  -1 7 ALLTOALL_EP 32 3 DATA_REORDER 8 2 REDUCESCATTER_DP_EP 48 100
"""


def groups_of(job: nadi.Job, rank: int) -> dict[str, list[int]]:
    """Return the ranks of each communication of a rank, by the last word of its name."""
    own = job.own_trace(rank)
    comm = own.nodes.filter(kind="COMM_COLL")
    members = [own.groups["ranks"][group].to_list() for group in comm["group"].to_list()]
    names = [name.removeprefix("COMM_COLL_NODE_") for name in comm["name"].to_list()]
    return dict(zip(names, members, strict=True))


@pytest.mark.parametrize("num_ranks", [0, 48])
def test_ranks_of_simai_communicate_in_their_groups(tmp_path: Path, num_ranks: int) -> None:
    """Compare with coordinates: tensor parallel ranks first, then experts, replicas, stages."""
    text = SIMAI.replace("group: 2", "group: 2 ep: 3 pp: 2 all_gpus: 24")
    (tmp_path / "workload.txt").write_text(text.replace("DATA_REORDER", "ALLREDUCE"))
    job = nadi.recordings.read_job(tmp_path / "workload.txt", num_ranks=num_ranks)
    assert isinstance(job, nadi.Job)
    world = num_ranks or 24
    assert len(job.traces) == world
    place = {rank: (rank % 2, rank // 2 % 3, rank // 6 % (world // 12), rank // (world // 2))
             for rank in range(world)}  # fmt: skip
    alike = {"norm_BROADCAST": (1, 2, 3), "norm_ALLGATHER_DP_EP": (0, 1, 3),
             "mlp_ALLTOALL_EP": (0, 2, 3), "mlp_REDUCESCATTER_DP_EP": (0, 1, 3),
             "mlp_ALLREDUCE": (1, 2, 3)}  # fmt: skip
    for rank in (0, 7, world - 1):
        assert groups_of(job, rank) == {
            name: [other for other in range(world)
                   if all(place[other][axis] == place[rank][axis] for axis in axes)]
            for name, axes in alike.items()
        }  # fmt: skip
    alone = [job.own_trace(rank) for rank in range(world)]
    system = nadi.load_system("dgx-h100", world)
    assert nadi.simulate(job, system).makespan == nadi.simulate(alone, system).makespan > 0


def test_gradients_of_weights_are_data_parallel(tmp_path: Path) -> None:
    layer = "mlp -1 7 ALLGATHER 32 3 REDUCESCATTER 8 2 ALLREDUCE 48 0"
    first = f"{layer.replace('mlp', 'norm')}\n{layer}"  # whose inputs need no gradient
    head = "HYBRID_TRANSFORMER model_parallel_NPU_group: 2"
    (tmp_path / "a.txt").write_text(f"{head}\n2\n{first}\n")
    job = nadi.recordings.read_job(tmp_path / "a.txt", num_ranks=6)
    assert isinstance(job, nadi.Job)
    found = groups_of(job, 3)
    assert {name: found[f"mlp_{name}"] for name in ("ALLGATHER", "REDUCESCATTER", "ALLREDUCE")} == {
        "ALLGATHER": [2, 3], "REDUCESCATTER": [2, 3], "ALLREDUCE": [1, 3, 5],
    }  # fmt: skip


def test_ranks_that_a_text_does_not_state_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("MICRO\n1\nall -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 1048576 1\n")
    given = ["simulate", str(file), "--system", "dgx-h100"]
    assert main(given) == 0
    assert "warning: no collective takes any time" in capsys.readouterr().out
    assert main([*given, "--ranks", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ranks"] == 8
    system = nadi.load_system("dgx-h100", 8)
    assert found["makespan_ns"] == collective_time(system, "all_reduce", 1 << 20)
    assert "simulate.groups-of-one" not in [one["code"] for one in found["issues"]]
    file.write_text("HYBRID_MODEL_DATA model_parallel_NPU_group: 4\n1\n" + SIMAI.split("\n")[2])
    assert main([*given, "--ranks", "6"]) == 2
    assert "6 ranks are no multiple of tp 4" in capsys.readouterr().err
    assert main([*given, "--ranks", "400000"]) == 2
    assert "or more than 131072" in capsys.readouterr().err


def test_workloads_of_simai(tmp_path: Path) -> None:
    """Types name their ranks, and times are ns."""
    trace = read_text(tmp_path, SIMAI.replace("\\\n", ""))
    comm = trace.nodes.filter(kind="COMM_COLL")
    assert comm.select("comm_type", "comm_bytes").rows() == [
        ("broadcast", 16), ("all_to_all", 32), ("reduce_scatter", 48), ("all_gather", 24),
    ]  # fmt: skip
    assert comm["name"][1] == "COMM_COLL_NODE_mlp_ALLTOALL_EP"
    times = trace.nodes.filter(kind="COMP")["duration"].to_list()
    assert times == [5, 7, 3, 2, 1, 1]
    counts = dict(trace.issues.select("code", "count").rows())
    assert counts["astra.groups"] == 3
    assert counts["astra.reorder"] == 1
    assert validate_trace(trace).is_empty()
