"""Nadi: what bounds an AI training or inference step, from the traces that PyTorch writes.

>>> import nadi
>>> run = nadi.run("traces", what_if="scale aten::mm 0.5")
>>> run.path.by_kind()

The main verbs and values stand here; everything else is in a package by its subject, such as
``nadi.whatif``. Names and packages are declared in ``__init__.pyi`` and loaded when they are first
used, so that ``import nadi`` costs little.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
