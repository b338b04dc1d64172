"""torch.distributed without other processes: one rank of any number, with the fake backend."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from nadi.pytorch.fake.fake_devices import patched
from nadi.pytorch.fake.fake_groups import GroupLog
from nadi.pytorch.fake.fake_mode import Recorder
from nadi.pytorch.fake.fake_objects import object_changes
from nadi.pytorch.fake.script_lines import script_line

torch: Any = importlib.import_module("torch")
dist: Any = importlib.import_module("torch.distributed")
_c10d: Any = importlib.import_module("torch.distributed.distributed_c10d")
_mesh: Any = importlib.import_module("torch.distributed.device_mesh")
_fake_pg: Any = importlib.import_module("torch.testing._internal.distributed.fake_pg")
_fake: Any = importlib.import_module("torch._subclasses.fake_tensor")

_LOCAL_RANKS = 8


@contextlib.contextmanager
def pretended_ranks(recorder: Recorder, rank: int, world_size: int) -> Iterator[None]:
    """Let a program be one rank of many: the environment of torchrun, and its process groups."""
    changes = [
        *_group_changes(recorder.groups), *_mesh_changes(), *_data_parallel_changes(),
        *object_changes(), *_sharding_changes(recorder),
        *_chunk_changes(),
    ]  # fmt: skip
    with _environment(rank, world_size), patched(changes):
        try:
            yield
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()


@contextlib.contextmanager
def _environment(rank: int, world_size: int) -> Iterator[None]:
    local = min(_LOCAL_RANKS, world_size)
    given = {
        "RANK": rank, "WORLD_SIZE": world_size, "LOCAL_RANK": rank % local,
        "LOCAL_WORLD_SIZE": local, "GROUP_RANK": rank // local, "MASTER_ADDR": "localhost",
        "MASTER_PORT": 29500, "TORCHELASTIC_RUN_ID": "none",
    }  # fmt: skip
    before = dict(os.environ)
    os.environ |= {name: str(value) for name, value in given.items()}
    try:
        yield
    finally:
        for name in given:
            os.environ.pop(name, None)
        os.environ |= before


def _group_changes(groups: GroupLog) -> list[tuple[Any, str, Any]]:
    begin, new_group = _c10d.init_process_group, _c10d.new_group

    def new_begin(*_: Any, **__: Any) -> None:
        begin("fake", rank=groups.rank, world_size=groups.world_size, store=_fake_pg.FakeStore())
        name = _c10d._get_default_group().group_name
        groups.named_as(name, groups.world.ranks, "default_pg")

    def make_group(ranks: Any = None, *rest: Any, **options: Any) -> Any:
        members = list(range(groups.world_size)) if ranks is None else [int(one) for one in ranks]
        description = options.get("group_desc") or ""
        options = {"group_desc": description or None}
        groups.made(sorted(members), description or script_line())
        if groups.rank not in members:
            _c10d._world.group_count += 1  # as if it had been made: names stay in step
            return _c10d.GroupMember.NON_GROUP_MEMBER
        made = new_group(ranks=members, backend="fake", **options)
        groups.named_as(str(made.group_name), sorted(members), description)
        return made

    names = (dist, _c10d, _mesh)
    found: list[tuple[Any, str, Any]] = [(module, "new_group", make_group) for module in names]
    found += [
        (module, "init_process_group", new_begin)
        for module in names
        if hasattr(module, "init_process_group")
    ]
    found += [(module, "is_nccl_available", lambda: True) for module in (dist, _c10d)]
    return found


def _mesh_changes() -> list[tuple[Any, str, Any]]:
    """Make and cut meshes with real tensors, and for the device that stands for a GPU."""
    kind = _mesh.DeviceMesh
    begin = kind.__init__

    def new_begin(self: Any, device_type: str, *args: Any, **options: Any) -> None:
        with _fake.unset_fake_temporarily():
            begin(self, "cpu" if device_type != "meta" else device_type, *args, **options)

    make = _mesh.init_device_mesh

    def new_make(device_type: str, *args: Any, **options: Any) -> Any:
        with _fake.unset_fake_temporarily():
            return make("cpu", *args, **options)

    modules = [
        module for module in list(sys.modules.values())
        if vars(module).get("init_device_mesh") is make
    ]  # fmt: skip
    found: list[tuple[Any, str, Any]] = [
        (module, "init_device_mesh", new_make) for module in modules
    ]
    found.append((kind, "__init__", new_begin))
    names = (
        "__getitem__", "_flatten", "_unflatten", "get_coordinate", "_get_all_submeshes", "size",
        "__repr__", "__eq__", "__hash__",
    )  # fmt: skip
    own = vars(kind)
    return [*found, *((kind, name, _with_values(own[name])) for name in names if name in own)]


def _with_values(function: Any) -> Any:
    def call(*args: Any, **options: Any) -> Any:
        with _fake.unset_fake_temporarily():
            return function(*args, **options)

    return call


def _data_parallel_changes() -> list[tuple[Any, str, Any]]:
    """Leave out what compares parameters of ranks when a model is wrapped."""
    module: Any = importlib.import_module("torch.nn.parallel.distributed")
    kind = module.DistributedDataParallel
    begin = kind.__init__

    def new_begin(self: Any, model: Any, *_: Any, **options: Any) -> None:
        # devices that it would compare with those of the parameters
        begin(self, model, **(options | {"device_ids": None, "output_device": None}))

    return [
        (kind, "__init__", new_begin),
        # ranks would agree on new buckets by values; the first ones stay
        (dist.Reducer, "_rebuild_buckets", lambda _: False),
        (module, "_verify_param_shape_across_processes", lambda *_, **__: True),
        (module, "_sync_module_states", lambda *_, **__: None),
    ]


class _Chunks:
    """The parts of a tensor for many ranks, of which a rank needs its own and the first."""

    def __init__(self, tensor: Any, number: int, dim: int) -> None:
        self._tensor, self._number, self._dim = tensor, number, dim
        self._each = -(-tensor.size(dim) // number)  # as torch.chunk: the last ones have less

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, place: int) -> Any:
        at, length = place * self._each, self._tensor.size(self._dim)
        if not 0 <= place < self._number:
            raise IndexError(place)
        if at >= length:
            return self[0].new_empty(0)
        return self._tensor.narrow(self._dim, at, min(self._each, length - at))


def _chunk_changes() -> list[tuple[Any, str, Any]]:
    """Let FSDP make two parts of a parameter instead of one for each of many ranks."""
    name = "_fsdp_param"
    with contextlib.suppress(ImportError):
        module: Any = importlib.import_module(f"torch.distributed.fsdp._fully_shard.{name}")
        if hasattr(module, "_chunk_with_empty"):
            return [(module, "_chunk_with_empty", lambda tensor, num_chunks, dim:
                     _Chunks(tensor, num_chunks, dim))]  # fmt: skip
    return []


def _sharding_changes(recorder: Recorder) -> list[tuple[Any, str, Any]]:
    """Leave out operators that DTensor runs to learn the shape of a result."""
    with contextlib.suppress(ImportError):
        module: Any = importlib.import_module("torch.distributed.tensor._sharding_prop")
        kind = module.ShardingPropagator
        return [
            (kind, name, _paused(recorder, vars(kind)[name]))
            for name in ("_propagate_tensor_meta_non_cached",)
            if name in vars(kind)
        ]
    return []


def _paused(recorder: Recorder, function: Any) -> Any:
    def call(*args: Any, **options: Any) -> Any:
        recorder.paused += 1
        try:
            return function(*args, **options)
        finally:
            recorder.paused -= 1

    return call
