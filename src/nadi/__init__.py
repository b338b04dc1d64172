"""Nadi: what bounds an AI training or inference step, from the traces that PyTorch writes.

>>> import nadi
>>> run = nadi.run("traces", what_if=["scale aten::mm 0.5"])
>>> run.path.by_kind()

Names are declared in ``__init__.pyi`` and loaded when they are first used, so that ``import nadi``
costs nothing.
"""

from lazy_loader import attach_stub

from nadi.version import __version__ as __version__

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
