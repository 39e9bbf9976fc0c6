"""The dropgate command."""
