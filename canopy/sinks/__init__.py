"""Exactly-once effects: a consumer's position in the database that has its effects.

*Promises*: what a program does to its database for the events of a stream, and the position behind
these events, are committed in one transaction of that database. So each event changes it once, also
if the program is killed at any point, or runs twice (docs/guide/streams.md#each-event-once).

*Called by*: programs. It knows the client library, and nothing of a node.

*Read in this order*:

* `positions`: the table of positions, and when a transaction may commit; knows no database.
* `sqlite`: for a connection of `sqlite3`. `alchemy`: for an engine of SQLAlchemy (extra `sync`).
"""
