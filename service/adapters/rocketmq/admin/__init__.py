"""What both transports ask of the brokers themselves, by the remoting client.

operator    the port's half that needs no client: topics, backlog, what was put aside
topics      topics and groups: made and compared
backlog     how much is in doubt and how much is undelivered
discarded   half messages that the broker asks about no more: listed, resumed
dead_letters  what a group gave up, or our code refused for good
cursor      how far either is dealt with
settings    every bound, with its reason
"""
