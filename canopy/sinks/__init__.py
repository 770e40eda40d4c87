"""Exactly-once effects: positions and transactions in the database that has a program's effects.

*Promises*: what a program does to its database for the events of a stream, and the position behind
these events, are committed in one transaction of that database. So each event changes it once, also
if the program is killed at any point, or runs twice. The other way round, events are appended to a
stream exactly if a transaction of the database is committed
(docs/guide/streams.md#each-event-once, docs/guide/streams.md#events-of-a-transaction).

*Called by*: programs. It knows the client library, and nothing of a node.

*Read in this order*:

* `database`: what is used of a database.
* `positions`: the table of positions, and when a transaction may commit. `sink`: a consumer.
* `records`: the table of transactions, and what they may become. `outbox`: a producer.
* `threads`: a database of which tasks await the calls. `asynchronous`: both for trio and asyncio.
* `sqlite`: both for a connection of `sqlite3`. `alchemy`: both for an engine of SQLAlchemy (extra
  `sync`). `alchemy_asyncio`: both for its `AsyncEngine` and `AsyncSession`.
"""
