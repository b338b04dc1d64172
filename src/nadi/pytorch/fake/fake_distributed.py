"""torch.distributed without other processes: one rank of any number, with the fake backend.

What is communicated of Python objects that ranks gather is recorded: PyTorch pickles them, gathers
their sizes, then as many bytes of each rank as the largest one has. Objects of others are taken
to be like those of this one.
"""

import contextlib
import importlib
import os
import pickle
import sys
from collections.abc import Iterator
from typing import Any

from nadi.pytorch.fake.fake_devices import patched
from nadi.pytorch.fake.fake_mode import Recorder
from nadi.pytorch.fake.operation_log import GroupLog, script_line

torch: Any = importlib.import_module("torch")
dist: Any = importlib.import_module("torch.distributed")
_c10d: Any = importlib.import_module("torch.distributed.distributed_c10d")
_fake: Any = importlib.import_module("torch._subclasses.fake_tensor")
# its name until torch 2.12
_all_gather_single: Any = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)


def object_changes() -> list[tuple[Any, str, Any]]:
    """Return the functions of torch.distributed that exchange objects, and their replacements."""
    given = {
        "all_gather_object": _all_gather, "gather_object": _gather,
        "broadcast_object_list": _broadcast,
    }  # fmt: skip
    return [(module, name, value) for module in (dist, _c10d) for name, value in given.items()]


def _all_gather(object_list: list[Any], obj: Any, group: Any = None, **_: Any) -> None:
    if _c10d._rank_not_in_group(group):
        return
    size = _gathered_size(obj, group)
    whole = _new_bytes(size * dist.get_world_size(group))
    _all_gather_single(whole, _new_bytes(size), group=group)
    object_list[:] = [obj] * len(object_list)


def _gather(
    obj: Any, object_gather_list: list[Any] | None = None, dst: Any = None, group: Any = None,
    group_dst: Any = None, **_: Any,
) -> None:  # fmt: skip
    if _c10d._rank_not_in_group(group):
        return
    size = _gathered_size(obj, group)
    found = None
    if object_gather_list is not None:
        found = list(_new_bytes(size * len(object_gather_list)).split(size))
        object_gather_list[:] = [obj] * len(object_gather_list)
    end = {"dst": dst or 0} if group_dst is None else {"group_dst": group_dst}
    dist.gather(_new_bytes(size), found, group=group, **end)


def _broadcast(*_: Any, **__: Any) -> None:
    """Do nothing: what another rank has, and its size, are not known."""


def _gathered_size(obj: Any, group: Any) -> int:
    """Gather the sizes of an object; return the largest."""
    members = dist.get_world_size(group)
    sizes = torch.empty(members, dtype=torch.int64, device="cpu")
    one = torch.empty(1, dtype=torch.int64, device="cpu")
    _all_gather_single(sizes, one, group=group)
    return _pickled_bytes(obj, dist.get_world_size())


def _new_bytes(size: int) -> Any:
    return torch.empty(size, dtype=torch.uint8, device="cpu")


class _Counter:
    """A file that only counts what is written to it."""

    def __init__(self) -> None:
        self.num_bytes = 0

    def write(self, part: Any) -> int:
        self.num_bytes += len(part)
        return len(part)


class _Pickler(pickle.Pickler):
    """Counts the bytes of an object of the rank whose object is the largest.

    A number that may be that of a rank has as many bytes as the last rank's. A tensor is pickled
    as an empty one, and its elements are counted.
    """

    def __init__(self, world_size: int) -> None:
        self.file = _Counter()
        super().__init__(self.file)
        self._world_size = world_size
        self._of_last = len(pickle.dumps(world_size - 1, 3)) - len(pickle.dumps(0, 3))

    def persistent_id(self, value: Any) -> Any:
        if type(value) is not int or not 0 <= value < self._world_size:
            return None
        self.file.num_bytes += self._of_last - 1  # for the code that says that 0 is an id
        return 0

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, _fake.FakeTensor):
            return NotImplemented
        self.file.num_bytes += value.numel() * value.itemsize
        return torch.empty(0, dtype=value.dtype).__reduce_ex__(pickle.DEFAULT_PROTOCOL)


def _pickled_bytes(obj: Any, world_size: int) -> int:
    """Return how many bytes an object has when it is pickled, at most on any rank."""
    pickler = _Pickler(world_size)
    with _fake.unset_fake_temporarily():
        pickler.dump(obj)
    return pickler.file.num_bytes


_mesh: Any = importlib.import_module("torch.distributed.device_mesh")
_fake_pg: Any = importlib.import_module("torch.testing._internal.distributed.fake_pg")

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
