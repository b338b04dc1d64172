"""Tests of nadi hang."""
