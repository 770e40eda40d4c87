"""Consumers: reading a shard's committed rows by content, from anywhere in its log to its end.

*Promises*: within one reading each committed row that the selector is true for comes once, in the
order of offsets, and no other row comes; a position counts what was scanned, so that it moves on
where nothing matches; a durable consumer's position never goes back and never passes what its
program has confirmed (docs/design/streams.md#consumers).

*Called by*: `streams.machines` builds `Readers`; programs reach it by commands. What a shard's
leader does is in `streams.services.read`.

    readers.begin(client, BeginReading(1, "orders", "price > 5"))   # a session with each leader
    readers.take(client, TakeEvents(2, 1))                          # EventsTaken, when rows come
    readers.commit(client, CommitReading(3, 1, ((0, position),)))   # Done, when that is committed
    readers.end_reading(client, EndReading(4, 1))

*Read in this order*:

* `messages`: between a reader's node and a shard's leader.
* `cursor`: one shard of a reading: its position, the rows that wait for the program, what a durable
  consumer has confirmed; which answers of leaders cannot be.
* `readers`: all readings of the node's programs, `streams.access.attachments`.
"""
