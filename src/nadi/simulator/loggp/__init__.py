"""LogGP: what messages cost processors and network interfaces, without a network's links."""
