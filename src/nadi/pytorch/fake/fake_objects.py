"""Python objects that ranks gather: what is communicated is recorded, without other ranks.

PyTorch pickles them, gathers their sizes, then as many bytes of each rank as the largest one has.
Objects of other ranks are taken to be like those of this one.
"""

from __future__ import annotations

import importlib
import pickle
from typing import Any

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
