"""The version, where the lowest layers can read it."""

__all__ = ["__version__"]

__version__ = "0.3.0"
