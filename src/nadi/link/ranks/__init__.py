"""Relate ranks to each other: collectives, messages, clocks."""
