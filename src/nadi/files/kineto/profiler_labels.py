"""Labels that torch 1.8 to 1.11 recorded as operators: they had no category of their own."""

from __future__ import annotations

import re

from nadi.files.files import RawFile
from nadi.files.json_file import Texts, find_texts, json_text
from nadi.files.kineto.kineto_event_kernels import CAT
from nadi.files.kineto.kineto_events import Events
from nadi.trace.arrays import Ints
from nadi.trace.schema import CATEGORIES

__all__ = ["labels_of_old"]

_OLD = '"Operator"'
_OPERATOR, _ANNOTATION = map(CATEGORIES.index, ("operator", "annotation"))
_LABEL = re.compile(
    r"ProfilerStep#\d+|Optimizer\.(step|zero_grad)#.*|enumerate\(DataLoader\)#.*|(gloo|nccl):.*"
)


def labels_of_old(raw: RawFile, events: Events, names: Texts, category: Ints) -> Ints:
    """Return the categories of nodes; what later versions record as an annotation is one.

    These are the marks of steps, optimizers and data loaders, and the ranges of communication.
    int64, shape (nodes,). O(nodes whose category is kept as text).
    """
    row, code, at, length = events.found.kept.T
    stated = (code == CAT) & (row >= 0)
    row = row[stated]
    if not row.size:
        return category
    words = find_texts(raw, at[stated], length[stated], json_text)
    old = row[words.numbers(lambda word: word == _OLD) == 1]
    named = Texts(names.codes[old], names.unique)
    is_label = named.numbers(lambda name: _LABEL.fullmatch(name) is not None) == 1
    found = category.copy()
    found[old[is_label & (category[old] == _OPERATOR)]] = _ANNOTATION
    return found
