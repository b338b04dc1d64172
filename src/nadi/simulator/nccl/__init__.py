"""NCCL's own model of its collectives: what they cost, and what it chooses."""
