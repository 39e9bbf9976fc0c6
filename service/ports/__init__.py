"""What the core needs of the world, as Protocols: messaging, stock, orders, clock."""
