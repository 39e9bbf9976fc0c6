"""The message transport that needs no broker: durable, in SQLite, in this process."""
