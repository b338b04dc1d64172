"""Files of systems: what they may say, what is refused, and how they grow with a job."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

import nadi
from nadi.cli import main
from nadi.errors import FormatError, InputError, NadiError, UsageError
from nadi.systems.library import read_system_file, shipped_systems, shipped_text
from nadi.systems.memory_tiers import LoadedLatency, remote_tier
from nadi.systems.system import Bus
from nadi.systems.system_file import system_from
from nadi.units import parse_bytes, parse_operations
from tests.simulator.cases import collective, compute, trace_of

MINE = """
about = "ours"
[compute]
peak = "100 TFLOP/s"
[memory]
bandwidth = "2 TB/s"
capacity = "80 GiB"
[[network.dimensions]]
topology = "switch"
size = 4
bandwidth = "200 GB/s"
latency = "500 ns"
[[network.dimensions]]
topology = "ring"
size = "any"
bandwidth = "100 Gb/s"
latency = "1.5 us"
[collectives]
all_reduce = ["ring", "direct"]
chunks = 2
least_chunk = "1 MB"
[scheduling]
queues = 2
"""
PAGE = "(docs/systems.md)"
START = """
start = "4 us"
broadcast = "halvingDoubling"
barrier = ["direct", "ring"]
"""


def edited(path: str, value: Any) -> dict[str, Any]:
    """Give the description above with one value put in; the path's parts have dots between."""
    described = tomllib.loads(MINE)
    *way, last = path.split(".")
    inner: Any = described
    for key in way:
        inner = inner[int(key)] if key.isdecimal() else inner.setdefault(key, {})
    inner[last] = value
    return described


def sizes(system: nadi.systems.System) -> list[int]:
    return [dimension.size for dimension in system.network.dimensions]


@pytest.mark.parametrize("name", shipped_systems())
def test_what_comes_with_nadi_can_be_loaded_and_says_where_it_is_from(name: str) -> None:
    described = read_system_file(name)
    system = nadi.load_system(name)
    assert described.about
    assert described.source
    assert "assumption" in shipped_text(name)
    assert system.compute.peak > 1e14
    assert system.compute.memory_bandwidth > 5e11
    assert all(d.bandwidth > 10 and d.latency > 0 for d in system.network.dimensions)
    few = min(system.network.num_ranks, 4) if name == "rtx-4090-workstation" else 4  # two slots
    assert nadi.load_system(name, few).network.num_ranks == few
    assert system.network.num_ranks in {1, 2, 4, 8, 72, 256, 4096}


def test_figures_come_out_in_the_units_of_the_simulator(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINE)
    system = nadi.load_system(tmp_path / "mine.toml", 12)
    first, second = system.network.dimensions
    assert (first.topology, first.size, first.bandwidth, first.latency) == ("switch", 4, 200, 500)
    assert (second.topology, second.size, second.bandwidth, second.latency) == (
        "ring",
        3,
        12.5,
        1500,
    )
    assert system.compute.peak == 1e14
    assert system.compute.memory_bandwidth == 2e12
    assert system.collectives.all_reduce == ("ring", "direct")
    assert system.collectives.all_gather == ("ring", "ring")
    assert (system.collectives.chunks, system.collectives.least_chunk) == (2, 10**6)
    assert system.collectives.queues == 2


def test_collectives_with_a_root_and_starts_may_be_stated(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINE.replace("[scheduling]", START + "[scheduling]"))
    found = nadi.load_system(tmp_path / "mine.toml", 12).collectives
    assert found.start_time == 4000
    assert found.broadcast == ("halvingDoubling", "halvingDoubling")
    assert found.algorithms("barrier") == ("direct", "ring")
    assert found.reduce == ("ring", "ring")
    (tmp_path / "other.toml").write_text(MINE)
    other = nadi.load_system(tmp_path / "other.toml", 12).collectives
    assert other.start_time == 0
    assert other.algorithms("barrier") == other.all_reduce == ("ring", "direct")


def test_toml_yaml_and_json_are_alike(tmp_path: Path) -> None:
    value = tomllib.loads(MINE)
    (tmp_path / "mine.toml").write_text(MINE)
    (tmp_path / "mine.json").write_text(json.dumps(value))
    one = nadi.load_system(tmp_path / "mine.toml")
    other = nadi.load_system(tmp_path / "mine.json")
    assert one.network == other.network
    assert one.collectives == other.collectives
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(value))
    assert nadi.load_system(tmp_path / "mine.yaml").network == one.network


@given(st.integers(1, 500))
def test_ranks_fill_a_node_before_they_need_another(ranks: int) -> None:
    described = read_system_file("dgx-h100")
    if ranks > 8 and ranks % 8:
        with pytest.raises(UsageError, match=f"does not fit {ranks} ranks, only 1 to 8, or a mult"):
            described.fit(ranks)
    else:
        system = described.fit(ranks)
        assert system.network.num_ranks == ranks
        assert sizes(system) == ([ranks] if ranks <= 8 else [8, ranks // 8])
        assert len(system.collectives.all_reduce) == len(sizes(system))


def test_shapes_say_which_sizes_there_are_and_which_ends_are_joined() -> None:
    line, torus = (nadi.load_system("tpu-v5e", ranks).network.dimensions for ranks in (64, 256))
    assert [(d.topology, d.size) for d in line] == [("mesh", 8), ("mesh", 8)]
    assert [(d.topology, d.size) for d in torus] == [("ring", 16), ("ring", 16)]
    assert [d.topology for d in nadi.load_system("tpu-v5e", 128).network.dimensions] == [
        "mesh", "ring"
    ]  # fmt: skip
    with pytest.raises(UsageError, match="does not fit 12 ranks, only 1, 4, 8"):
        nadi.load_system("tpu-v5e", 12)


@pytest.mark.parametrize(
    ("path", "value", "where", "what"),
    [
        ("color", "blue", "$", "unknown field `color`"),
        ("network.dimensions.0.speed", 3, "$.network.dimensions[0]", "unknown field `speed`"),
        ("network.dimensions.0.topology", "star", "$.network.dimensions[0].topology", "'star'"),
        ("network.dimensions.0.size", "any", "$.network.dimensions[0].size", "only the last"),
        ("network.dimensions.0.size", 0, "$.network.dimensions[0].size", "0 is not 1 to 2^31"),
        ("network.dimensions.1.bandwidth", "12 GW/s", "$.network.dimensions[1].bandwidth", "GW"),
        ("network.dimensions.1.bandwidth", 12, "$.network.dimensions[1].bandwidth", "`str`"),
        ("network.dimensions.1.latency", "5", "$.network.dimensions[1].latency", "not a time"),
        ("scheduling.slots", "gpu", "$.scheduling.slots", "'gpu'"),
        ("bus.speed", 3, "$.bus", "unknown field `speed`"),
        ("bus.bandwidth", "3 ns", "$.bus.bandwidth", "not a bandwidth"),
        ("bus.pause", "3 GB/s", "$.bus.pause", "not a time"),
        ("collectives.injection_scale", 0, "$.collectives.injection_scale", "0 is not 1 to 2^31"),
        ("collectives.group_endpoint_delay", "1", "$.collectives.group_endpoint_delay", "no"),
        ("memory.remote", {"kind": "per-node", "ranks_per_node": 0},
         "$.memory.remote.ranks_per_node", "0 is not 1 to 2^31"),
        ("network.dimensions", [], "$.network.dimensions", "there are none"),
        ("network.shapes", ["2x2"], "$.network.dimensions[0]", "a network with shapes"),
        ("compute.peak", "312 TB/s", "$.compute.peak", "not a rate such as 312 TFLOP/s"),
        ("memory.capacity", "80 Gb", "$.memory.capacity", "not a size"),
        ("memory.remote", {"kind": "pool", "bandwidth": "1 MB/s"}, "$.memory.remote.bandwidth",
         "below 1 GB/s"),
        ("collectives.all_reduce", ["ring"] * 3, "$.collectives.all_reduce", "3 algorithms for 2"),
        ("collectives.all_gather", "star", "$.collectives.all_gather", "'star'"),
        ("collectives.scatter", ["ring", "star"], "$.collectives.scatter", "'star'"),
        ("collectives.start", "4", "$.collectives.start", "not a time"),
        ("collectives.chunks", 0, "$.collectives.chunks", "0 is not 1 to 65536"),
        ("scheduling.queues", 0, "$.scheduling.queues", "0 is not 1 to 2^31"),
        ("compat", "gem5", "$.compat", "'gem5'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_path(path: str, value: Any, where: str, what: str) -> None:
    with pytest.raises((FormatError, UsageError)) as caught:
        system_from(edited(path, value), "mine")
    assert caught.value.where == f"mine: {where}"
    assert what in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("path", "value", "remedy"),
    [
        ("memory.capacitty", "80 GB",
         "known keys: bandwidth, capacity, efficiency, remote, paths, tiers (docs/systems.md)"),
        ("memory.remote", {"kind": "pool", "speed": 3},
         "known keys: kind, bandwidth, latency, ranks_per_node, capacity, loaded " + PAGE),
        ("scheduling.policy", "best", "expected one of: explicit, fifo, lifo (docs/systems.md)"),
        ("network.dimensions.1.size", "all",
         "expected one of: any, a whole number (docs/systems.md)"),
        ("compat", "gem5", "expected one of: nothing, astra-sim (docs/systems.md)"),
        ("memory.bandwidth", 80, 'write a number with its unit as a string: "400 GB/s", "500 ns"'),
        ("collectives.chunks", "two",
         "docs/systems.md lists all keys; nadi systems NAME prints an example"),
    ],
)  # fmt: skip
def test_what_would_be_right_is_said(path: str, value: Any, remedy: str) -> None:
    with pytest.raises(FormatError) as caught:
        system_from(edited(path, value), "mine")
    assert caught.value.remedy == remedy
    with pytest.raises(FormatError, match="known keys: network, about, source, compute, memory, "):
        system_from(edited("color", "blue"), "mine")


def test_all_figures_that_are_to_be_determined_are_named_at_once() -> None:
    stated = {
        "compute": {"peak": "tbd"}, "memory": {"bandwidth": "TBD"},
        "network": {"dimensions": [{"topology": "ring", "bandwidth": "n/a"}]},
    }  # fmt: skip
    paths = r"\$\.compute\.peak, \$\.memory\.bandwidth, \$\.network\.dimensions\[0\]\.bandwidth"
    with pytest.raises(FormatError, match=paths):
        system_from(stated, "a.toml")


def test_a_folder_is_no_system_but_may_be_called_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("dgx-h100", "mine"):
        (tmp_path / name).mkdir()
    assert nadi.load_system("dgx-h100", 8).name == "dgx-h100"
    with pytest.raises(UsageError, match="system 'mine': is a folder, not a file; pass"):
        nadi.load_system("mine")


def test_slots_are_those_of_devices_but_for_astra_sim() -> None:
    assert system_from(edited("scheduling.queues", 1), "mine").fit(4).slots == "device"
    assert system_from(edited("scheduling.slots", "astra-sim"), "mine").fit(4).slots == "astra-sim"
    described = edited("compat", "astra-sim")
    assert system_from(described, "mine").fit(4).slots == "astra-sim"
    described["scheduling"]["slots"] = "device"
    with pytest.raises(FormatError, match=r"\$\.scheduling\.slots: .*sets the slots itself"):
        system_from(described, "mine")


def test_everything_that_a_system_has_can_be_said_in_a_file() -> None:
    described = tomllib.loads(EVERYTHING)
    system = system_from(described, "all").fit(8)
    # what differs from its default; the rest is said above with values of its own
    for part in (system.network, system.compute, system.collectives, system.bus):
        assert part is not None
        fields = {f.name: f.default for f in msgspec.structs.fields(part)}
        # physical links do not go with congestion
        physical = ("fabrics", "changes", "routes")
        fields = {name: one for name, one in fields.items() if name not in physical}
        same = [name for name, default in fields.items() if getattr(part, name) == default]
        assert not same, f"no key sets {same}"
    assert [d.topology for d in system.network.dimensions] == ["ring", "ring"]
    assert system.bus == Bus(latency=10, overhead=5, pause=3, gap=0.001, reduction=2)
    assert system.collectives.endpoint_delay == 3 * 25
    assert system.groups == {"tp": (0, 1)}
    loaded = LoadedLatency(idle_ns=100, read_gbps=30, write_gbps=20)
    stated = remote_tier("per-node", 100, 30, ranks_per_node=2, capacity=10**12, loaded=loaded)
    assert system.remote_memory == stated


EVERYTHING = """
about = "all"
[compute]
peak = "100 TFLOP/s"
time = "roofline"
[memory]
bandwidth = "2 TB/s"
[memory.remote]
kind = "per-node"
bandwidth = "30 GB/s"
latency = "100 ns"
ranks_per_node = 2
capacity = "1 TB"
loaded = {latency = "100 ns", read = "30 GB/s", write = "20 GB/s"}
[network]
congestion = true
rendezvous = true
[[network.dimensions]]
topology = "torus"
size = 4
bandwidth = "50 GB/s"
[[network.dimensions]]
topology = "torus"
bandwidth = "50 GB/s"
latency = "1 us"
[collectives]
all_reduce = "biring"
reduce_scatter = "direct"
all_gather = "direct"
all_to_all = "ring"
bandwidth_aware = false
chunks = 2
least_chunk = "1 MB"
endpoint_delay = "25 ns"
group_endpoint_delay = "7 ns"
injection_scale = 3
start = "1 us"
barrier = "direct"
custom = {all_reduce = "own"}
[scheduling]
active_chunks = 2
queues = 2
policy = "lifo"
replay_only = true
[bus]
latency = "10 ns"
overhead = "5 ns"
pause = "3 ns"
bandwidth = "1 TB/s"
reduction = "2 ns"
[groups]
tp = [0, 1]
"""


def test_a_roofline_needs_both_figures() -> None:
    described = edited("compute.time", "roofline")
    assert system_from(described, "mine").fit(4).compute.roofline
    del described["memory"]["bandwidth"]
    with pytest.raises(FormatError, match=r"\$\.compute\.time: a roofline needs"):
        system_from(described, "mine")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.toml", "x = ", "read as toml"),
        ("a.json", "{", "read as json"),
        ("a.json", "[]", "expected `object`"),
        ("a.txt", "x", "is not a suffix of a system file"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(FormatError, match=message):
        nadi.load_system(tmp_path / name)


def test_names_that_are_not_there() -> None:
    with pytest.raises(UsageError, match="did you mean dgx-h100"):
        nadi.load_system("DGX-H10")
    with pytest.raises(InputError, match="No such file"):
        nadi.load_system("nowhere/mine.toml")


def test_decimal_binary_and_bits_are_told_apart() -> None:
    assert parse_bytes("80 GB") == 80 * 10**9
    assert parse_bytes("80GiB") == 80 << 30
    assert parse_operations("2.5 PFLOP/s") == 2.5e15
    for text in ("80", "80 Gb", "80 G"):
        with pytest.raises(ValueError, match="not a size"):
            parse_bytes(text)
    for text in ("312 TFLOPS", "0 TFLOP/s", "3 GB/s"):
        with pytest.raises(ValueError, match="not a rate"):
            parse_operations(text)


def test_the_command_lists_them_and_prints_one(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["systems"]) == 0
    listed = capfd.readouterr().out
    assert all(name in listed for name in shipped_systems())
    assert main(["systems", "--json"]) == 0
    assert [one["name"] for one in json.loads(capfd.readouterr().out)] == shipped_systems()
    assert main(["systems", "dgx-a100"]) == 0
    assert capfd.readouterr().out == shipped_text("dgx-a100")
    assert main(["systems", "dgx"]) == 2
    assert "no file and no system has this name" in capfd.readouterr().err


def test_a_job_is_simulated_on_a_system_of_its_size(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    nodes = [compute(0, 3), collective(1, "all_reduce", 1 << 20, data_deps=[0])]
    for rank in range(4):
        nadi.write(trace_of(nodes), tmp_path / f"work.{rank}.et")
    command = ["simulate", str(tmp_path), "--system", "dgx-h100", "--json"]
    assert main(command) == 0
    found = json.loads(capfd.readouterr().out)
    alone = nadi.simulation.collective_time(nadi.load_system("dgx-h100", 4), "all_reduce", 1 << 20)
    assert found["makespan_ns"] == 3000 + alone
    text = shipped_text("dgx-h100")
    file = tmp_path / "followed.toml"
    file.write_text(text[: text.index("[nccl]")])
    command[3] = str(file)
    assert main(command) == 0
    found = json.loads(capfd.readouterr().out)
    # a start, and a ring: six steps of a quarter of the bytes over two links, and 10 ns on each
    # packet; three of what arrives are summed, each three times through the memory
    step = int(2 * 235 + (1 << 18) / 450) + 10
    assert found["makespan_ns"] == 3000 + 3600 + 10 + 6 * step + 9 * ((1 << 18) // 3350)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "no system is given"),
        (("--system", "dgx-h100", "--default-rules"), "--default-rules: is for ASTRA-sim's files"),
        (("--system", "dgx-h100", "--network", "n.yml"), "--network: is for ASTRA-sim's files"),
    ],
)
def test_options_that_do_not_go_together(
    options: tuple[str, ...], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "traces", *options]) == 2
    assert message in capfd.readouterr().err


MODEL = """
[nccl]
version = "2.27.7"
{0}
[nccl.node]
ring = {{ channels = 12, bandwidth_intra = "30 GB/s" }}
{1}
"""


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (MODEL.format("", ""), r"\$.nccl.capability: 0 is not a compute capability"),
        (MODEL.format("capability = 90", "steps = { LL = 0 }"), r"steps.LL: 0.0 is not above 0"),
        (MODEL.format("capability = 90", "hops = { LL = 200 }"), r"hops.LL: 200.0 is not above 0"),
        (MODEL.format("capability = 90", "steps = { Fast = 2 }"), "Fast"),
        (MODEL.format('capability = 90\nprotocols = ["LL1"]', ""), "LL1"),
        (MODEL.format('gpu = "gfx900"', ""), "gfx900"),
        ('[nccl]\nversion = "2.27.7"\ncapability = 90\n', r"\$.nccl.node: it is missing"),
        ('[nccl]\nversion = "2.26"\ngpu = "gfx942"\n', r"\$.nccl.node: it is missing"),
    ],
)
def test_invalid_sections_nccl(section: str, message: str, tmp_path: Path) -> None:
    text = shipped_text("dgx-h100")
    file = tmp_path / "system.toml"
    file.write_text(text[: text.index("[nccl]")] + section)
    with pytest.raises(NadiError, match=message):
        nadi.load_system(str(file), 8)
