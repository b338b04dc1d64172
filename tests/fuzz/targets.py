"""What is tried with hostile input besides reading a trace: a function of a seed for each.

Each makes an input that its seed tells, and hands it to Nadi. Nothing but a NadiError of one line
may come of it.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import zipfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

import nadi
from nadi.files.settings_text import parse_settings
from nadi.graph.event_graph import EventGraph
from nadi.systems.importers.astra_sim import AstraSimOptions
from nadi.systems.library import shipped_systems, shipped_text
from nadi.systems.system import System
from nadi.systems.system_file import SystemFile, system_from
from nadi.trace.trace import Trace
from tests.conftest import PairWriter
from tests.feed.traces import attribute, content as content_of, message
from tests.fuzz.commands import COMMANDS, try_command
from tests.fuzz.corpus import device_object, samples
from tests.fuzz.damages import other_rows
from tests.fuzz.foreign import try_replay, try_server
from tests.fuzz.further_commands import FURTHER_COMMANDS
from tests.fuzz.mutations import HOSTILE_VALUES, changed_value, mutated
from tests.fuzz.outcome import WRITTEN, check_use
from tests.fuzz.readers import READERS, try_reader
from tests.simulator.cases import trace_of

__all__ = ["TARGETS"]

_LARGEST_JOB = 64  # ranks, and parts of a collective, that are simulated here


def _try_system(make: Callable[[], System]) -> bool:
    """Make a system, and simulate a small job on it if it is one for that."""
    try:
        system = make()
        size = system.network.num_ranks
        parts = system.collectives.chunks * system.collectives.queues
        if size > _LARGEST_JOB or parts > _LARGEST_JOB or system.collectives.custom:
            return True
        nadi.simulate([_small_job(system.remote_memory is not None)] * size, system)
    except nadi.NadiError as error:
        _check_line(error)
        return False
    return True


def _check_line(error: nadi.NadiError) -> None:
    assert str(error).isprintable(), error


@cache
def _small_job(with_remote_memory: bool) -> Trace:
    nodes: list[dict[str, Any]] = [
        {"id": 0, "type": "COMP_NODE", "is_cpu_op": False, "duration_micros": 5, "num_ops": 1000,
         "tensor_size": 100},
        {"id": 1, "type": "COMM_COLL_NODE", "is_cpu_op": False, "comm_type": 0, "comm_size": 4096,
         "data_deps": [0]},
        {"id": 2, "type": "MEM_LOAD_NODE", "is_cpu_op": False, "tensor_size": 64, "data_deps": [0]},
    ]  # fmt: skip
    return trace_of(nodes if with_remote_memory else nodes[:2])


@cache
def _described(name: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(shipped_text(name))


def try_nadi_system(seed: str, _: Path) -> bool:
    """Read a file of a system in TOML, JSON or YAML, and simulate on it."""
    chance = random.Random(seed)
    name = chance.choice(shipped_systems())
    if chance.random() < 0.3:
        text, suffix = mutated(shipped_text(name).encode(), b"", seed), ".toml"
    else:
        value = _described(name)
        for _again in range(chance.choice((1, 1, 2))):
            value = changed_value(value, chance)
        # JSON is YAML too
        text = json.dumps(value).encode(errors="replace")
        suffix = chance.choice((".json", ".yaml"))
        if chance.random() < 0.2:
            text = mutated(text, b"{&a [*a, *a]}", seed)
    ranks = chance.choice((None, None, 8, 8, 4, 2, 1, 7, 0, -1, 10**30))
    return _try_system(lambda: _system_file(text, suffix).fit(ranks))


def _system_file(text: bytes, suffix: str) -> SystemFile:
    return system_from(parse_settings(text, suffix, "s", "system"), "s")


_FABRICS: tuple[dict[str, Any], ...] = (
    {"kind": "switch"},
    {"kind": "fat-tree", "leaf": 4, "pod": 2, "oversubscription": [2, 1.5], "uplink": "100 GB/s",
     "rails": True, "routing": "by-destination"},
    {"kind": "rails", "adapter_link": "32 GB/s"},
    {"kind": "torus", "shape": "4x4*", "adapters": 0},
    {"kind": "dragonfly", "ends": 2, "routers": 3, "global_links": 2, "local": "99 GB/s",
     "adapters": 0},
)  # fmt: skip


def try_fabrics(seed: str, _: Path) -> bool:
    """Describe a physical network, and ask for routes."""
    chance = random.Random(seed)
    rate = {"bandwidth": "50 GB/s", "latency": "1 us"}
    nodes = {"kind": "switch", "name": "nvlink", "ranks": 4, **rate}
    fabric = {"name": "net", "adapters": 4, **rate, **chance.choice(_FABRICS)}
    links: dict[str, Any] = {
        "*rank1.*": {"bandwidth": "0.5x"},
        "net.*.up*": {"bandwidth": "1 GB/s"},
    }
    network = {"dimensions": [{"topology": "switch", **rate}], "fabrics": [nodes, fabric]}
    part = chance.choice(("fabrics", "fabrics", "links"))
    network |= {"links": links if chance.random() < 0.3 or part == "links" else {}}
    network[part] = changed_value(network[part], chance)
    text = json.dumps({"network": network}).encode(errors="replace")
    rank = np.arange(16)
    try:
        system = _system_file(text, ".json").fit(16)
        nadi.simulation.network_graph(system).routes(rank, (rank + 5) % 16)
    except nadi.NadiError as error:
        _check_line(error)
        return False
    return True


_NETWORK = (
    "topology: [ Ring, Switch ]\nnpus_count: [ 2, 2 ]\nbandwidth: [ 50.0, 25 ]\n"
    "latency: [ 500.0, 20 ]\n"
)
_SYSTEM: dict[str, Any] = {
    "scheduling-policy": "LIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 4, "all-reduce-implementation": ["ring", "direct2"],
    "all-gather-implementation": ["ring", "ring"], "reduce-scatter-implementation": ["ring", "ring"],
    "all-to-all-implementation": ["direct", "halvingDoubling"], "collective-optimization": "localBWAware",
    "local-mem-bw": 50, "peak-perf": 900, "roofline-enabled": 1, "model-shared-bus": 0, "L": 1, "o": 2,
    "g": 3, "G": 0.5, "local-reduction-delay": 1,
}  # fmt: skip
_MEMORY = {
    "memory-type": "PER_NODE_MEMORY_EXPANSION", "remote-mem-latency": 10, "remote-mem-bw": 4,
    "num-npus-per-node": 2,
}  # fmt: skip


def try_astra_sim(seed: str, folder: Path) -> bool:
    """Read ASTRA-sim's four files, of which one or two have changed, and simulate with them."""
    chance = random.Random(seed)
    paths = [folder / name for name in ("net.yml", "system.json", "memory.json", "groups.json")]
    network = _NETWORK.encode()
    which = {chance.randrange(5), chance.randrange(5)}
    if 0 in which and chance.random() < 0.5:
        network = mutated(network, b"- 4\n", seed)
    elif 0 in which:
        words = network.decode().split(" ")
        words[chance.randrange(len(words))] = str(chance.choice(HOSTILE_VALUES))
        network = " ".join(words).encode(errors="replace")
    contents = [network]
    for number, value in enumerate((_SYSTEM, _MEMORY, {"1": [0, 1], "2": [2, 3]}), 1):
        text = json.dumps(changed_value(value, chance) if number in which else value).encode()
        contents.append(mutated(text, b"{}", seed) if chance.random() < 0.03 else text)
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    usual = 4 not in which
    options = AstraSimOptions(
        congestion=chance.random() < 0.2,
        rendezvous=chance.random() < 0.2,
        queues=chance.choice((1, 2) if usual else (0, -1, 3, 2**40)),
        injection_scale=chance.choice((1, 2) if usual else (0, 1, 10**12, 2**60)),
        compat=chance.choice(("astra-sim", "")),
    )
    return _try_system(lambda: nadi.systems.load_astra_sim_system(*paths, options))


def try_own_file(seed: str, folder: Path) -> bool:
    """Read a file of Nadi's own with other content, of which all checksums are right."""
    chance = random.Random(seed)
    content = samples()["nadi"].content
    with zipfile.ZipFile(io.BytesIO(content)) as whole:
        members = {name: whole.read(name) for name in whole.namelist()}
    name = chance.choice(sorted(members))
    if name.endswith(".json"):
        if chance.random() < 0.5:
            members[name] = json.dumps(changed_value(json.loads(members[name]), chance)).encode(
                errors="replace"
            )
        else:
            members[name] = mutated(members[name], b"{}", seed)
    elif chance.random() < 0.5:
        other = members[chance.choice([n for n in sorted(members) if n.endswith(".arrow")])]
        members[name] = mutated(members[name], other, seed)
    else:
        members[name] = other_rows(members[name], chance)
    if chance.random() < 0.03:
        del members[name]
    path = folder / "hostile.nadi"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as changed:
        for member, data in members.items():
            changed.writestr(zipfile.ZipInfo(member), data)
    try:
        trace = nadi.read(path)
        # a table that contradicts another is told of by the rules
        for line in nadi.trace.validate_trace(trace)["detail"]:
            assert line.isprintable(), line
        for _attribute in trace.attributes.items():
            pass
    except nadi.NadiError as error:
        _check_line(error)
        return False
    check_use(trace, folder, chance.choice(WRITTEN))
    return True


@cache
def _graph() -> EventGraph:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        pair = PairWriter(Path(folder))
        pair.op("aten::mm", 0, 10)
        pair.event("cudaLaunchKernel", 2, 4, "cuda_runtime", correlation=1)
        pair.event("gemm", 20, 100, "kernel", pid=0, tid=7, stream=7, device=0, correlation=1)
        pair.op("aten::item", 30, 100)
        pair.event("cudaDeviceSynchronize", 40, 85, "cuda_runtime", correlation=2)
        pair.op("aten::add", 140, 10)
        return nadi.build_graph(nadi.load_job(*pair.write()))


@cache
def _digraph() -> nx.DiGraph:
    return nadi.to_networkx(_graph())


def try_networkx(seed: str, _: Path) -> bool:
    """Edit a graph in networkx with values that it cannot have."""
    chance = random.Random(seed)
    digraph = _digraph().copy()
    for _edit in range(chance.choice((1, 1, 2, 4))):
        nodes, edges = list(digraph.nodes), list(digraph.edges)
        if not nodes or not edges:
            break
        kind = chance.randrange(6)
        if kind < 2:
            edge = chance.choice(edges)
            digraph.edges[edge][chance.choice(("weight", "kind", "op"))] = chance.choice(
                (*HOSTILE_VALUES, "kernel", "added", 1, 10**6)
            )
        elif kind == 2:
            digraph.add_edge(chance.choice(nodes), chance.choice((*nodes, "new", -1, 10**9)),
                             weight=chance.choice((0, 5, -5, 2**61, 2**62)))  # fmt: skip
        elif kind == 3:
            digraph.remove_edge(*chance.choice(edges))
        elif kind == 4:
            digraph.remove_node(chance.choice(nodes))
        else:
            digraph.add_node(chance.choice(("a", 99, (1, 2))), delay=chance.choice(HOSTILE_VALUES))
    try:
        graph = nadi.from_networkx(digraph)
        time = nadi.graph.replay_graph(graph).time
    except nadi.NadiError as error:
        _check_line(error)
        return False
    assert not time.size or abs(time).max() < 2**63 - 1
    return True


@cache
def _nodes_to_feed() -> bytes:
    attributes = [
        attribute("num_ops", "int64", 5), attribute("comm_priority", "int32", 3),
        attribute("is_cpu_op", "bool", False), attribute("comm_size", "uint64", 4096),
    ]  # fmt: skip
    return content_of([
        message(number, deps, ctrl_deps=deps[:1], duration_micros=7, attr=attributes)
        for number, deps in ((1, ()), (2, (1,)), (3, (1,)), (5, (3, 2)), (9, (5,)), (8, (2, 9)))
    ])  # fmt: skip


def try_feeder(seed: str, folder: Path) -> bool:
    """Hand out the nodes of a damaged .et."""
    chance = random.Random(seed)
    if chance.random() < 0.2:
        sample = samples()["chakra-json-feeder"]
        suffix, content = sample.suffix, sample.content
    else:
        suffix, content = ".et", _nodes_to_feed()
    content = mutated(content, samples()["chakra"].content, seed)
    if chance.random() < 0.1:
        suffix, content = f"{suffix}.gz", gzip.compress(content, 1, mtime=0)
    path = folder / f"fed{suffix}"
    path.write_bytes(content)
    try:
        feeder = nadi.simulation.ETFeeder(
            path, chance.choice((1, 2, 3, 100)), policy=chance.choice(("id", "fifo", "comm_priority")),
            ctrl_deps=chance.random() < 0.5,
        )  # fmt: skip
        while feeder.has_nodes_to_issue():
            node = feeder.get_next_issuable_node()
            assert node is not None
            for name in ("id", "name", "type", "runtime", "num_ops", "tensor_size", "comm_type"):
                getattr(node, name, None)
            feeder.free_children_nodes(node.id)
            feeder.remove_node(node.id)
    except nadi.NadiError as error:
        _check_line(error)
        return False
    return True


_WORDS = (
    "scale", "set", "remove", "fuse", "cuda-graph", "move", "to", "add", "->", "cut", "no-overhead",
    "no-gaps", "network", "aten::mm", "gemm", "kind=kernel", "kind=device", "rank=0", "stream=7",
    "thread=1", "in=aten::mm", "0.5", "0", "-1", "1e300", "1e999", "nan", "10us", "1e999s", "400GB/s",
    "1e-320B/s", "'", '"', ",", "(", ")", "*", "[", "sync", "launch", "stream", "{}", "\n", "\x1b[31m",
    "kind=", "7", "99999999999999999999", "a{99999}", "(a*)*", "\\", "é", "\ud800", "9" * 5000,
)  # fmt: skip
_CHANGES = (
    "scale aten::mm 0.5", "set gemm 10us", "remove kind=kernel", "fuse aten", "cuda-graph aten::mm",
    "move gemm to 8", "add gemm -> aten::add", "cut sync aten", "no-overhead", "no-gaps",
    "network 400GB/s 5us", "scale 'a b' in=x rank=0 2",
)  # fmt: skip


def try_what_if(seed: str, _: Path) -> bool:
    """Ask what a change would do, in words that mean little."""
    chance = random.Random(seed)
    words = chance.choice(_CHANGES).split(" ")
    for _again in range(chance.choice((1, 1, 2, 3))):
        at = chance.randint(0, len(words))
        words[at : at + chance.randint(0, 1)] = [chance.choice(_WORDS)]
    text = " ".join(words)
    if chance.random() < 0.3:
        text = mutated(text.encode(errors="replace"), b"kind=", seed).decode(errors="replace")
    try:
        answer = nadi.what_if(_graph(), text)
    except nadi.NadiError as error:
        _check_line(error)
        return False
    assert answer.window_ns >= 0
    return True


def try_hta(seed: str, folder: Path) -> bool:
    """Find the critical path by HTA's rules, of events with values that are hard to hold."""
    chance = random.Random(seed)
    value = changed_value(changed_value(device_object(), chance), chance)
    path = folder / "device.json"
    path.write_text(
        json.dumps(value).replace("NaN", "1").replace("Infinity", "1"), "utf-8", "replace"
    )
    try:
        trace = nadi.read(path)
        nadi.analyses.hta_critical_path(trace, annotation=chance.choice(("", "", "Profiler", "\n")))
    except nadi.NadiError as error:
        _check_line(error)
        return False
    return True


TARGETS: dict[str, Callable[[str, Path], bool]] = {
    "nadi-system": try_nadi_system,
    "fabrics": try_fabrics,
    "astra-sim-system": try_astra_sim,
    "own-file": try_own_file,
    "networkx": try_networkx,
    "feeder": try_feeder,
    "what-if": try_what_if,
    "hta": try_hta,
    "server": try_server,
    "replay": try_replay,
    **{name: partial(try_reader, reader) for name, reader in READERS.items()},
    **{
        name: partial(try_command, command)
        for name, command in (COMMANDS | FURTHER_COMMANDS).items()
    },
}
