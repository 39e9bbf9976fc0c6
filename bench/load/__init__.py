"""The load generator: a process of its own that speaks bare HTTP/1.1, so that it is not what is measured."""
