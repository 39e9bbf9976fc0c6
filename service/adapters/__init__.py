"""What fulfils the ports; only the bootstrap imports from here."""
