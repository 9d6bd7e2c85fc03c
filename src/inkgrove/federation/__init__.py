"""Between nodes (docs/protocol.md sections 7 and 8).

`peers` finds and authenticates other nodes, `sharing` delivers instances to them, `replication` copies their logs. What
people publish here goes out in signed requests; what other nodes send comes in verified, or not at all. Workers run on
one event loop; whatever waits for the database runs in threads.
"""
