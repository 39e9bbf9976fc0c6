"""Metrics and log actions, each declared once with what it means."""
