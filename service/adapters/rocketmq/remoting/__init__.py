"""A small client for the broker's own protocol, which its Python clients do not offer: topics, groups, offsets, resume.

cluster     all brokers behind the name servers
admin       topics, groups and settings of one broker
queues      its offsets and messages; half messages to be asked about again
consumers   who consumes in a group, and how far; messages sent back
routes      which broker has a topic
client      one connection an address, made when needed; a deadline for every call
connection  answers find their questions by number
signing     access control
frames      bytes on the wire; bounded, and never trusted
messages    stored messages out of bytes
"""
