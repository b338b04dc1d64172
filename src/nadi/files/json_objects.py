"""Read members of many alike JSON objects as columns, without an object of Python for each."""

from collections.abc import Sequence

import numpy as np

from nadi.files.files import RawFile
from nadi.files.json_file import json_error, text_of
from nadi.files.json_object_kernels import read_objects
from nadi.files.read_columns import NULL, ReadColumns
from nadi.kernels.json_tokens import MAX_DEPTH, failure_of
from nadi.kernels.strings import make_words

_LIKELY_BYTES = 128  # of an object, or more: room that is not used takes no memory


def read_columns(raw: RawFile, fields: Sequence[str], is_list: bool) -> ReadColumns:
    """Read members of the objects of a file.

    - ``raw``: Its content is a list of objects, or objects that stand one after another.
    - ``fields``: Keys; those of an object in an object as ``outer.inner``.
    - ``is_list``: Which of both it is.
    - Raises FormatError if it is not valid JSON, or anything but objects. O(bytes).
    """
    keys: dict[str, int] = {}
    paths: dict[str, int] = {"": 0}
    targets, around = [], [-1]
    for row, field in enumerate(fields):
        outer = ""
        *parents, last = field.split(".")
        for parent in parents:
            inner = f"{outer}.{parent}"
            code = keys.setdefault(parent, len(keys))
            if inner not in paths:
                paths[inner] = len(paths)
                targets.append((paths[outer], code, -2 - paths[inner]))
                around.append(paths[outer])
            outer = inner
        targets.append((paths[outer], keys.setdefault(last, len(keys)), row))
    tree = np.full((len(paths), len(keys) + 1), -1, dtype=np.int64)
    tree[:, -1] = around
    for node, code, target in targets:
        tree[node, code] = target
    work, words = np.empty(MAX_DEPTH, dtype=np.uint8), make_words(keys)
    room = raw.content.size // _LIKELY_BYTES + 1
    while True:
        values = np.empty((len(fields), room), dtype=np.int64)
        lengths = np.full(values.shape, NULL, dtype=np.int32)
        found = read_objects(raw.content, is_list, words, tree, values, lengths, work)
        if found < 0:
            raise json_error(raw, *failure_of(found))
        if found <= room:
            row_of = {field: row for row, field in enumerate(fields)}
            return ReadColumns(raw, row_of, values[:, :found], lengths[:, :found], text_of)
        room *= 4
