"""The version, where the lowest layers can read it."""

__version__ = "0.4.0"
