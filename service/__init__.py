"""Dropgate: no overselling, no order lost, nobody left in doubt."""
