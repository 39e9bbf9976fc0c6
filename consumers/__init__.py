"""Thin loops over the core: order, payment time-out, events, keeper."""
