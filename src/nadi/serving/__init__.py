"""Serving: how many tokens a second engines give, how late, and from which memory."""
