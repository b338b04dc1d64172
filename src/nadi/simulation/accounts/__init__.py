"""What a simulation says of ranks, collectives, links and tiers."""
