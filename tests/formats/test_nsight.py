"""Exports of Nsight Systems: what is read, and what is said of the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nadi
from nadi.files import sniff
from nadi.recordings.job_of_files import split_ranks
from tests.formats.foreign_files import NSIGHT_START, nsight_export, nsight_tables

_DEVICE = "CUPTI_ACTIVITY_KIND_"


def _read(folder: Path, content: bytes) -> nadi.Trace:
    path = folder / "report.sqlite"
    path.write_bytes(content)
    return nadi.read(path)


def _rows(trace: nadi.Trace) -> list[tuple[Any, ...]]:
    columns = trace.nodes.select("category", "name", "start", "duration", "thread", "stream")
    return sorted((c, n, s - NSIGHT_START, d, t, q) for c, n, s, d, t, q in columns.rows())


def test_all_kinds_of_work_are_read(tmp_path: Path) -> None:
    trace = _read(tmp_path, nsight_export())
    assert _rows(trace) == [
        ("annotation", "nccl:all_reduce", 1_005_000, 1_000, 201, -1),
        ("annotation", "step", 1_000_001, 8_999, 201, -1),
        ("driver", "cuMemcpyDtoH_v2", 1_002_500, 500, 201, -1),
        ("kernel", 'gemm<"é">(int)', 1_010_000, 20_007, -1, 7),
        ("memcpy", "Memcpy DtoH", 1_031_000, 1_000, -1, 7),
        ("operator", "aten::mm", 1_000_500, 3_500, 201, -1),
        ("runtime", "cudaLaunchKernel", 1_001_000, 1_003, 201, -1),
        ("sync", "Stream Sync", 1_032_100, 100, -1, 7),
    ]
    by_name = {row["name"]: row for row in trace.nodes.to_dicts()}
    assert by_name["cudaLaunchKernel"]["correlation"] == 11
    assert by_name['gemm<"é">(int)']["correlation"] == 11
    assert by_name["Memcpy DtoH"]["bytes"] == 4096
    assert by_name["aten::mm"]["sequence"] == 17
    row = trace.nodes["name"].cast(str).to_list().index("aten::mm")
    assert trace.attributes.of(row)["args"]["Input Dims"] == [[2, 3], [3, 4]]


@pytest.mark.parametrize(
    ("name", "category"),
    [("ncclGroupEnd", "operator"), ("ncclAllReduce", "operator"), ("nccl tests", "annotation"),
     ("ncclx: step", "annotation"), ("my ncclSend", "annotation")],
)  # fmt: skip
def test_ranges_of_nccl_itself_are_calls_and_no_ranges_of_the_program(
    tmp_path: Path, name: str, category: str
) -> None:
    tables = nsight_tables()
    tables["NVTX_EVENTS"][0]["text"] = name
    (tmp_path / "a.sqlite").write_bytes(nsight_export(tables))
    nodes = nadi.read(tmp_path / "a.sqlite").nodes
    assert nodes.filter(nodes["name"] == name)["category"].cast(str).to_list() == [category]


def test_processes_are_ranks_whose_equal_correlation_ids_do_not_mix(tmp_path: Path) -> None:
    first, second = nsight_tables(), nsight_tables((1 << 48) | (300 << 24) | 300, device=1)
    merged = {name: rows + (second[name] if name.startswith(("NVTX", _DEVICE)) else [])
              for name, rows in first.items()}  # fmt: skip
    trace = _read(tmp_path, nsight_export(merged))
    work = trace.nodes.filter(trace.nodes["category"].is_in(["runtime", "kernel"]))
    assert sorted(work["correlation"].value_counts()["count"].to_list()) == [2, 2]
    ranks = split_ranks(tmp_path / "report.sqlite", trace)
    assert [one.rank for one in ranks] == [0, 1]
    assert _rows(ranks[0]) == _rows(_read(tmp_path, nsight_export(first)))
    assert [set(one.nodes["device"].to_list()) for one in ranks] == [{-1, 0}, {-1, 1}]
    assert "nsight.not-held" in ranks[0].issues["code"].to_list()


def test_waits_state_device_0_and_are_of_the_device_of_their_context(tmp_path: Path) -> None:
    tables: dict[str, Any] = nsight_tables(device=1)
    tables[f"{_DEVICE}KERNEL"][0] |= {"contextId": 3}
    tables[f"{_DEVICE}SYNCHRONIZATION"][0] |= {"contextId": 3, "deviceId": 0}
    other = tables[f"{_DEVICE}SYNCHRONIZATION"][0] | {"contextId": 4}
    tables[f"{_DEVICE}SYNCHRONIZATION"].append(other)
    trace = _read(tmp_path, nsight_export(tables))
    syncs = trace.nodes.filter(trace.nodes["category"] == "sync")
    assert sorted(syncs["device"].to_list()) == [0, 1]


def test_what_is_not_read_is_counted(tmp_path: Path) -> None:
    tables: dict[str, Any] = nsight_tables()
    mark, half = dict(tables["NVTX_EVENTS"][0]), dict(tables["NVTX_EVENTS"][0])
    across = tables["NVTX_EVENTS"][0] | {"endGlobalTid": 5, "eventType": 60}
    tables["NVTX_EVENTS"] += [mark | {"eventType": 34}, half | {"end": None}, across]
    tables[f"{_DEVICE}KERNEL"] += [tables[f"{_DEVICE}KERNEL"][0] | {"start": "soon"}]
    tables[f"{_DEVICE}KERNEL"] += [tables[f"{_DEVICE}KERNEL"][0] | {"correlationId": 99}]
    tables["OSRT_API"] = [{"start": 1}, {"start": 2}]
    trace = _read(tmp_path, nsight_export(tables))
    assert trace.nodes.height == 9
    counts = dict(trace.issues.select("code", "count").rows())
    assert counts == {
        "nsight.not-read": 2, "nsight.marks": 1, "nsight.open-ranges": 1,
        "nsight.across-threads": 1, "nsight.without-time": 1, "nsight.unlaunched": 1,
        "nsight.not-held": 1,
    }  # fmt: skip


def test_missing_tables_and_columns_are_no_error(tmp_path: Path) -> None:
    tables = nsight_tables()
    few = {name: tables[name] for name in ("META_DATA_EXPORT", f"{_DEVICE}KERNEL")}
    few[f"{_DEVICE}KERNEL"] = [{"start": 5, "end": 9, "deviceId": 0, "streamId": 1}]
    trace = _read(tmp_path, nsight_export(few))
    assert trace.nodes["name"].to_list() == ["unnamed"]
    assert "nsight.no-operators" in trace.issues["code"].to_list()


def test_other_databases_and_cut_ones_are_refused(tmp_path: Path) -> None:
    other = nsight_export({"notes": [{"text": "x"}]})
    with pytest.raises(nadi.errors.FormatError, match="not an export of Nsight Systems"):
        _read(tmp_path, other)
    assert sniff(tmp_path / "report.sqlite") is not None
    with pytest.raises(nadi.errors.FormatError, match="states"):
        _read(tmp_path, nsight_export()[:-512])


def test_views_of_the_database_are_not_run(tmp_path: Path) -> None:
    tables = nsight_tables()
    kernels = tables.pop(f"{_DEVICE}KERNEL")
    tables["hidden"] = kernels
    view = f"CREATE VIEW {_DEVICE}KERNEL AS SELECT * FROM hidden"
    trace = _read(tmp_path, nsight_export(tables, view))
    assert "kernel" not in trace.nodes["category"].cast(str).to_list()


def test_an_endless_name_of_a_column_is_no_sql(tmp_path: Path) -> None:
    tables: dict[str, Any] = nsight_tables()
    tables[f"{_DEVICE}MEMSET"] = [
        {"start": 1, "end": 2, "globalPid": 0, '"x); DROP TABLE e; --"': 1}
    ]
    assert _read(tmp_path, nsight_export(tables)).nodes.height == 9


def test_virtual_tables_are_not_read(tmp_path: Path) -> None:
    tables = nsight_tables()
    del tables["StringIds"]
    path = tmp_path / "export.sqlite"
    path.write_bytes(nsight_export(tables, "CREATE VIRTUAL TABLE StringIds USING fts4(id, value)",
                                   "INSERT INTO StringIds VALUES (3, 'made')"))  # fmt: skip
    assert "made" not in nadi.read(path).nodes["name"].cast(str).to_list()
