"""Dropgate: sell a limited drop without overselling, without losing an order, and without leaving anyone in doubt."""
