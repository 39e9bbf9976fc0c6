"""The transport `rocketmq5`: RocketMQ 5 through the gRPC of its proxy, on rocketmq-python-client.

transport   the port: producers, publisher, consumers; the rest is the operator's (admin/)
producer    half message, the local transaction, its end; and plain publishing
checks      check-backs: off the client's stream at once, answered on our event loop, each with a deadline
consumer    one long poll at a time; what it brings is handed out as it is asked for
session     keeps a client alive: opened by a deadline, probed, rebuilt when it has gone deaf
link        one of the package's clients, and calls through it that can be awaited
hooks       those clients, made from our settings, and what they tell us
threads     what blocks, off the event loop
wire        requests and answers of the protocol
sdk         the package itself, imported in one place
settings    every bound, with its reason

Threads: the package has one for its I/O and some timers, all daemons. What of it blocks (start-up, shutdown, a topic's
first route) runs on threads of ours that nobody waits for beyond a deadline; everything else is awaited, and blocks no
thread.
"""
