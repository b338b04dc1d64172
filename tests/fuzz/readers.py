"""Readers of small files, called alone: thousands of inputs a second, where a command takes long.

What each reads is a file that :mod:`tests.fuzz.commands` has too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import nadi
from nadi.files import memory_snapshot, nsight, pftrace, rocprof, xplane
from nadi.files.csv_tables import read_parquet
from nadi.files.flight_recorder import parse_dump
from nadi.files.settings_text import parse_settings
from nadi.files.switches import decode_perfetto_switches, decode_switch_text
from nadi.memory.offloading.flexgen_costs import parse_offload_machine
from nadi.models.llm.language_model import language_model_from
from nadi.models.networks.network_file import network_from
from nadi.sharing.conditional.conditional_model import decode_generator
from nadi.sharing.conditional.generators import generator_job
from nadi.sharing.synthesis.model_bytes import decode_model
from nadi.sharing.synthesis.synthetic_jobs import synthetic_job
from nadi.systems.nccl.inspector import parse_inspector
from nadi.systems.nccl.measured import parse_nccl_log, parse_nccl_tests
from nadi.systems.system_file import system_from
from tests.formats.chakra_cases import raw_file
from tests.fuzz.commands import COMMANDS
from tests.fuzz.damages import damaged
from tests.fuzz.further_commands import FURTHER_COMMANDS

__all__ = ["READERS", "Reader", "try_reader"]


class Reader(NamedTuple):
    """A reader, and the file of a command that it reads."""

    command: str
    file: str
    read: Callable[[bytes], Any]

    def content(self) -> bytes:
        """Give the file before it is damaged."""
        return (COMMANDS | FURTHER_COMMANDS)[self.command].files()[self.file]


def _settings(make: Callable[[Any, str], Any], suffix: str, content: bytes) -> Any:
    return make(parse_settings(content, suffix, "f", "file"), "f")


READERS: dict[str, Reader] = {
    "read-nccl-tests": Reader("measured", "all_reduce.txt", lambda c: parse_nccl_tests(c, "f")),
    "read-inspector": Reader("inspector", "inspector.log", lambda c: parse_inspector(raw_file(c))),
    "read-nccl-log": Reader("nccl-log", "nccl.log", lambda c: parse_nccl_log(c, "f")),
    "read-switches": Reader("switches", "s.txt", decode_switch_text),
    "read-packets": Reader("switch-packets", "s.pftrace", decode_perfetto_switches),
    "read-dump": Reader("hang", "dumps/rank_1", lambda c: parse_dump(c, "f", 1)),
    "read-parquet": Reader("operation-table", "table.parquet", lambda c: read_parquet("f", c, "")),
    "read-system": Reader("collective", "system.toml", partial(_settings, system_from, ".toml")),
    "read-model": Reader("estimate", "model.json", partial(_settings, language_model_from, ".json")),
    "read-network": Reader("generate", "network.toml", partial(_settings, network_from, ".toml")),
    "read-offload": Reader("generate", "t4.toml", lambda c: parse_offload_machine(c, ".toml", "f")),
    "read-nsight": Reader("other-tools", "nsight.sqlite", lambda c: nsight.decode(raw_file(c))),
    "read-rocprof": Reader("other-tools", "rocprof.json", lambda c: rocprof.decode(raw_file(c))),
    "read-xplane": Reader("other-tools", "xplane.xplane.pb", lambda c: xplane.decode(raw_file(c))),
    "read-pftrace": Reader("other-tools", "pftrace.pftrace", lambda c: pftrace.decode(raw_file(c))),
    "read-snapshot": Reader(
        "other-tools", "snapshot.pickle", lambda c: memory_snapshot.decode(raw_file(c))
    ),
    "read-learned": Reader(
        "own-models", "model.nadi", lambda c: synthetic_job(decode_model(c, "f"))
    ),
    "read-generator": Reader(
        "own-models", "generator.nadi", lambda c: generator_job(decode_generator(c, "f"))
    ),
    "read-private": Reader(
        "own-models", "private.nadi", lambda c: generator_job(decode_generator(c, "f"), tp=1)
    ),
    "read-yaml": Reader("estimate", "plan.json", partial(_settings, lambda found, _: found, ".yaml")),
}  # fmt: skip
"""By name; each is a target of its own."""


def try_reader(reader: Reader, seed: str, _: Path) -> bool:
    """Read a damaged file; tells whether it was taken."""
    chance = random.Random(seed)
    content = reader.content()
    for _again in range(chance.choice((1, 1, 1, 2))):
        content = damaged(content, content, reader.file, chance)
    try:
        reader.read(content)
    except nadi.NadiError as error:
        assert str(error).isprintable(), error
        return False
    return True
