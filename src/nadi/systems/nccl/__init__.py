"""How long NCCL and RCCL take."""
