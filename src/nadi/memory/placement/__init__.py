"""The tensors of a recorded job in the tiers of a system."""
