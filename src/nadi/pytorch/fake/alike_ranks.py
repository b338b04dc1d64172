"""Find which ranks of a job do the same, by recording few of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

__all__ = ["RankClass", "find_classes", "ranges_of"]

Sign = Callable[[Sequence[int]], Mapping[int, str]]


class RankClass(NamedTuple):
    """Ranks that do the same, and the one of them that was recorded."""

    recorded: int
    ranks: tuple[int, ...]


def find_classes(
    world_size: int, families: Mapping[str, Sequence[Sequence[int]]], sign: Sign
) -> list[RankClass]:
    """Find the classes of all ranks.

    The first, the last and a middle rank are compared; if they do the same, all ranks do. Else
    ranks along each axis are compared: those of a group of each family, whose groups divide the
    ranks, or all ranks if there is no such family. Between two ranks of an axis that do the same,
    and the one in the middle between them too, all are taken to do the same.

    Parameters
    ----------
    families
        Process groups by what they are for, with their members.
    sign
        Records ranks, if they are not yet; returns a text for each that is equal for ranks that do
        the same.

    Raises
    ------
    ValueError
        Never for a job whose ranks differ along its axes; if the last rank does something else
        than its class.
    """
    axes = _axes(world_size, families)
    places = {rank: tuple(axis.place[rank] for axis in axes) for rank in range(world_size)}
    at = {place: rank for rank, place in places.items()}
    middle = at.get(tuple(axis.size // 2 for axis in axes), world_size // 2)
    probes = sorted({0, middle, world_size - 1})
    signs = sign(probes)
    if len(set(signs.values())) == 1:
        return [RankClass(0, tuple(range(world_size)))]
    labels = [_labels(axis, sign) for axis in axes]
    differing = [k for k, label in enumerate(labels) if len(set(label)) > 1]
    if len(at) != world_size or not differing:  # the axes do not tell ranks apart
        axes = [_whole(world_size)]
        labels, differing = [_labels(axes[0], sign)], [0]
        places = {rank: (rank,) for rank in range(world_size)}
        at = {(rank,): rank for rank in range(world_size)}
    return _combined(axes, labels, differing, places, at, sign)


class _Axis(NamedTuple):
    """Ranks along an axis through rank 0, and the place of each rank along it."""

    ranks: tuple[int, ...]
    place: Mapping[int, int]

    @property
    def size(self) -> int:
        return len(self.ranks)


def _whole(world_size: int) -> _Axis:
    ranks = tuple(range(world_size))
    return _Axis(ranks, dict(zip(ranks, ranks, strict=True)))


def _axes(world_size: int, families: Mapping[str, Sequence[Sequence[int]]]) -> list[_Axis]:
    """Return the axes along which ranks can differ: independent ones that tell ranks apart."""
    found: list[_Axis] = []
    distinct: dict[int, tuple[int, ...]] = dict.fromkeys(range(world_size), ())
    by_size = sorted(families.values(), key=lambda groups: max(map(len, groups), default=0))
    for groups in by_size:  # small ones first: larger ones may be made of several
        members = sorted(rank for group in groups for rank in group)
        sizes = {len(group) for group in groups}
        if members != list(range(world_size)) or len(sizes) != 1 or sizes == {1}:
            continue
        place = {rank: k for group in groups for k, rank in enumerate(group)}
        with_it = {rank: (*distinct[rank], place[rank]) for rank in distinct}
        if len(set(with_it.values())) < len(set(distinct.values())) * sizes.pop():
            continue  # it is not independent of the axes before
        distinct = with_it
        found.append(_Axis(tuple(next(group for group in groups if 0 in group)), place))
    rest = world_size // max(len(set(distinct.values())), 1)
    if rest > 1:  # ranks that no group connects, such as stages that only exchange messages
        alike: dict[tuple[int, ...], list[int]] = {}
        for rank in range(world_size):
            alike.setdefault(distinct[rank], []).append(rank)
        if {len(ranks) for ranks in alike.values()} == {rest}:
            place = {rank: k for ranks in alike.values() for k, rank in enumerate(ranks)}
            found.append(_Axis(tuple(alike[distinct[0]]), place))
    return found


def _labels(axis: _Axis, sign: Sign) -> list[int]:
    """Return, for each place along an axis, the first place that does the same."""
    size = axis.size
    label = [-1] * size
    todo = [(0, size - 1)]
    found: dict[int, str] = {}

    def signs(places: Iterable[int]) -> list[str]:
        wanted = sorted(set(places))
        ranks = [axis.ranks[one] for one in wanted if one not in found]
        known = sign(ranks)
        found.update({one: known[axis.ranks[one]] for one in wanted if one not in found})
        return [found[one] for one in places]

    while todo:
        first, last = todo.pop()
        middle = (first + last) // 2
        at_first, at_middle, at_last = signs([first, middle, last])
        if at_first == at_middle == at_last or last - first <= 1:
            for place in range(first, last + 1):
                label[place] = first if place < last or at_first == at_last else last
        else:
            todo += [(middle, last), (first, middle)]
    by_sign: dict[str, int] = {}
    return [by_sign.setdefault(found[one], one) for one in label]


def _combined(
    axes: Sequence[_Axis], labels: Sequence[Sequence[int]], differing: Sequence[int],
    places: Mapping[int, tuple[int, ...]], at: Mapping[tuple[int, ...], int], sign: Sign,
) -> list[RankClass]:  # fmt: skip
    """Return a class for each combination of labels along the axes that matter."""
    choices = [sorted(set(labels[k])) for k in differing]
    recorded: dict[tuple[int, ...], int] = {}
    for chosen in product(*choices):
        place = [0] * len(axes)
        for k, one in zip(differing, chosen, strict=True):
            place[k] = one
        recorded[chosen] = at[tuple(place)]
    signs = sign(sorted(recorded.values()))
    first = {signs[rank]: rank for rank in sorted(recorded.values(), reverse=True)}
    ranks: dict[int, list[int]] = {}
    for rank, at_place in places.items():
        label = tuple(labels[k][at_place[k]] for k in differing)
        ranks.setdefault(first[signs[recorded[label]]], []).append(rank)
    classes = [RankClass(one, tuple(members)) for one, members in sorted(ranks.items())]
    last = max(places)
    own = next(one.recorded for one in classes if last in one.ranks)
    if (known := sign([own, last]))[own] != known[last]:
        raise ValueError(f"rank {last} does something else than rank {own}, along no axis alone")
    return classes


def ranges_of(ranks: Sequence[int]) -> list[tuple[int, int]]:
    """Return ascending ranks as ranges: first, and one past the last."""
    found: list[tuple[int, int]] = []
    for rank in ranks:
        if found and found[-1][1] == rank:
            found[-1] = found[-1][0], rank + 1
        else:
            found.append((rank, rank + 1))
    return found
