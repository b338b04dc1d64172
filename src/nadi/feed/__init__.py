"""Traces handed out node by node, to simulators that others write."""

from __future__ import annotations

from nadi.feed.batch import NodeBatch
from nadi.feed.feeder import ETFeeder
from nadi.feed.node import ETFeederNode, NodeType

__all__ = ["ETFeeder", "ETFeederNode", "NodeBatch", "NodeType"]
