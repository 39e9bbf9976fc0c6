"""What anything must cost on this machine: the least that a server, a Redis call or an INSERT can do."""
