"""A recording says the same whether it names CUDA's runtime, HIP's, or the driver below them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import nadi
from tests.link.test_synchronization import DeviceWriter, count, inferred, pairs

RUNTIMES = {"CUDA": "cuda", "HIP": "hip", "driver": "cu"}


@pytest.fixture
def device(tmp_path: Path) -> DeviceWriter:
    return DeviceWriter(tmp_path)


def as_recorded_by(prefix: str, device: DeviceWriter) -> nadi.Trace:
    """Read what was written with calls of CUDA's runtime as if another one had been called."""
    driver = {"cudaDeviceSynchronize": "cuCtxSynchronize"} if prefix == "cu" else {}
    for event in device.events:
        name = str(event["name"])
        event["name"] = driver.get(name) or re.sub("^cuda(?=[A-Z])", prefix, name)
        if prefix == "cu" and event["cat"] == "cuda_runtime":
            event["cat"] = "cuda_driver"
    return device.read()


def waits(trace: nadi.Trace) -> list[tuple[str, str, str]]:
    """Give what waits for what, with the names of calls without their prefix."""
    return [
        (kind, *(re.sub("^(cuda|hip|cu)(?=[A-Z])", "", name) for name in pair))
        for kind in ("sync", "event", "launch") for pair in pairs(trace, kind)
    ]  # fmt: skip


@pytest.mark.parametrize("prefix", RUNTIMES.values(), ids=RUNTIMES)
def test_device_synchronization(device: DeviceWriter, prefix: str) -> None:
    device.work("a", (0, 5), (10, 100), stream=7)
    device.work("b", (6, 9), (12, 200), stream=8)
    device.call("cudaDeviceSynchronize", 20, 190)
    found = [pair for pair in waits(as_recorded_by(prefix, device)) if pair[0] == "sync"]
    name = "CtxSynchronize" if prefix == "cu" else "DeviceSynchronize"
    assert found == [("sync", "a", name), ("sync", "b", name)]


def test_synchronization_of_a_context_is_that_of_its_device_in_hip_too(
    device: DeviceWriter,
) -> None:
    device.work("a", (0, 5), (10, 100))
    device.call("hipCtxSynchronize", 20, 190)
    assert pairs(device.read(), "sync") == [("a", "hipCtxSynchronize")]


@pytest.mark.parametrize("prefix", RUNTIMES.values(), ids=RUNTIMES)
@pytest.mark.parametrize("what", ["Stream", "Event"])
def test_synchronization_with_what_ended_shortly_before(
    device: DeviceWriter, what: str, prefix: str
) -> None:
    device.work("a", (0, 5), (10, 100))
    device.call(f"cuda{what}Synchronize", 20, 85)
    found = [pair for pair in waits(as_recorded_by(prefix, device)) if pair[0] == "sync"]
    assert found == [("sync", "a", f"{what}Synchronize")]


@pytest.mark.parametrize("prefix", RUNTIMES.values(), ids=RUNTIMES)
def test_an_event_stands_for_work_before_it_was_recorded(device: DeviceWriter, prefix: str) -> None:
    device.work("a", (0, 5), (10, 100))
    device.call("cudaEventRecord", 6, 1)
    device.work("later", (8, 9), (100, 300))
    device.call("cudaEventSynchronize", 20, 88)
    found = [pair for pair in waits(as_recorded_by(prefix, device)) if pair[0] == "sync"]
    assert found == [("sync", "a", "EventSynchronize")]


@pytest.mark.parametrize("prefix", RUNTIMES.values(), ids=RUNTIMES)
@pytest.mark.parametrize("stated", [True, False])
def test_a_stream_that_waits_for_an_event(
    device: DeviceWriter, prefix: str, *, stated: bool
) -> None:
    device.work("source", (0, 5), (10, 100), stream=17)
    record = device.call("cudaEventRecord", 6, 1)
    wait = device.call("cudaStreamWaitEvent", 8, 1)
    if stated:
        device.sync_event("Stream Wait Event", wait, wait_on_stream=17, stream=18,
                          wait_on_cuda_event_record_corr_id=record)  # fmt: skip
    device.work("waits", (13, 15), (102, 110), stream=18)
    trace = as_recorded_by(prefix, device)
    assert pairs(trace, "event") == [("source", "waits")]
    assert inferred(trace, "event") == [not stated]
    assert count(trace, "link.event-unknown") == 0


@pytest.mark.parametrize("prefix", ["cuda", "hip"])
def test_a_copy_that_is_not_asynchronous_holds_its_call_up(
    device: DeviceWriter, prefix: str
) -> None:
    name = "Memcpy DtoH (Device -> Pinned)"
    device.work(name, (0, 80), (20, 60), 7, "gpu_memcpy", "cudaMemcpy")
    device.work(name, (100, 180), (120, 160), 7, "gpu_memcpy", "cudaMemcpyAsync")
    found = [pair for pair in waits(as_recorded_by(prefix, device)) if pair[0] == "sync"]
    assert found == [("sync", name, "Memcpy")]


@pytest.mark.parametrize("prefix", ["cuda", "hip"])
def test_a_thread_that_only_asks_for_events_does_no_work(device: DeviceWriter, prefix: str) -> None:
    """Its calls follow each other on no thread, as NCCL's watchdog belongs to no program."""
    device.event("aten::add", 0, 10)
    for start in (10, 30, 50):
        device.call("cudaEventQuery", start, 5, tid=2)
    for start in (60, 80):
        device.call("cudaEventQuery", start, 5, tid=3)
    device.call("cudaEventRecord", 90, 5, tid=3)
    trace = as_recorded_by(prefix, device)
    query, record = f"{prefix}EventQuery", f"{prefix}EventRecord"
    assert pairs(trace, "order") == [(query, query), (query, record)]
