"""Each optimizer of this PyTorch is recorded; the pretended GPU has what PyTorch asks of one."""

from __future__ import annotations

from typing import Any

import pytest

from nadi.pytorch import fake_recording

torch = pytest.importorskip("torch")

# of all; the others have no gradients that are sparse, and no closure, in the program below
NAMES = sorted(
    name for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
    and name not in ("Optimizer", "SparseAdam", "LBFGS")
)  # fmt: skip
_ADDRESSES = {"device_type", "native_handle", "stream_id", "device_index", "device",
              "event_id", "ipc_handle", "from_ipc_handle"}  # fmt: skip


def rows_of_step(name: str, **options: Any) -> int:
    with fake_recording(4) as recording:
        torch.distributed.init_process_group("nccl")
        layer = torch.nn.Linear(16, 16, bias=False, device="cuda")
        optimizer = getattr(torch.optim, name)(layer.parameters(), **options)
        while True:
            layer(torch.ones(2, 16, device="cuda")).sum().backward()
            optimizer.step()
    return recording.trace.nodes.filter(recording.trace.nodes["stream"] >= 0).height


@pytest.mark.parametrize("name", NAMES)
def test_each_optimizer_is_recorded(name: str) -> None:
    assert rows_of_step(name) > 5  # the layer, its gradient, and the step itself


@pytest.mark.parametrize("name", ["Adam", "AdamW", "RMSprop", "NAdam"])
def test_optimizers_whose_step_a_graph_could_hold(name: str) -> None:
    assert rows_of_step(name, capturable=True) > 5


@pytest.mark.parametrize("kind", ["Stream", "Event"])
def test_the_pretended_device_has_the_methods_of_a_true_one(kind: str) -> None:
    from nadi.pytorch.fake.fake_devices import pretended_devices
    from nadi.pytorch.fake.fake_mode import Recorder
    from nadi.pytorch.fake.operation_log import GroupLog, OperationLog

    methods = {name for name in dir(getattr(torch, kind)) if not name.startswith("_")}
    with pretended_devices(Recorder(OperationLog(), GroupLog(0, 1)), "H100"):
        made = getattr(torch, kind)()
    assert {name for name in methods - _ADDRESSES if not hasattr(made, name)} == set()
