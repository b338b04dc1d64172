"""What ``nadi.feed`` gives; each name is loaded when it is first used."""

from .feeder import ETFeeder as ETFeeder
from .feeder_node import ETFeederNode as ETFeederNode, NodeType as NodeType
from .node_batch import NodeBatch as NodeBatch
