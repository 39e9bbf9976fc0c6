"""The transport `rocketmq4`: RocketMQ's classic remoting protocol, on rocketmq-client-python over librocketmq.

transport   the port: producers, publisher, consumers; the rest is the operator's (admin/)
producer    half message, the local transaction, its end
half        one half message between the thread that sends it and the event loop
checks      check-backs: handed over by the native client, answered by the remoting client
publisher   plain publishing: types are looked at, delays become levels
levels, level_desk   delay levels by their length, and what the brokers have of them
keeper      keeps the native client alive: looked for at the brokers, replaced when it is not known there
link        one set of native connections; all of it blocks
crew        threads for what blocks
library     the package and the library under it, imported in one place
consumer, subscription, group   consumers, what those of a group share, and their group at the brokers
child, child_keeper, worker, frames, lines   the process in which the native consumer lives, and the way to it
properties  which properties a message has of its sender
settings, bounds   every bound, with its reason

Threads: the library has its own, which call into Python and wait for nothing there but a verdict, within a deadline.
What of it blocks runs on daemon threads that nobody waits for beyond a deadline.
"""
