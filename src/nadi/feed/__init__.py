"""Traces handed out node by node, to simulators that others write."""

from __future__ import annotations

from nadi.feed.feeder import ETFeeder
from nadi.feed.feeder_node import ETFeederNode, NodeType
from nadi.feed.node_batch import NodeBatch

__all__ = ["ETFeeder", "ETFeederNode", "NodeBatch", "NodeType"]
