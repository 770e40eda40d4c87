"""Consumers: reading a shard's committed rows by content, from anywhere in its log to its end.

*Promises*: within one reading each committed row that the selector is true for comes once, in the
order of offsets, and no other row comes; a position counts what was scanned, so that it moves on
where nothing matches; a durable consumer's position never goes back and never passes what its
program has confirmed (docs/design/streams.md#consumers).

*Called by*: `streams.machines` builds `Readers`, for the node's programs. What a shard's leader
does is in `streams.services.read`.

*Read in this order*:

* `messages`: between a reader's node and a shard's leader.
* `pieces`: rows of a chunk as they are sent. `skipping`: which chunks a selector cannot match
  anything in, by their zone maps.
* `sharing`: rows of several readings in one message. `selectors`: which of them say the same.
* `explaining`: what became of one row.
* `cursor`: a program's node: one shard of a reading, for which it has a session with the leader
  (`streams.access`). `take_records`: what is traced of it. `asked`: what a program wants.
  `readers`: all of them, and the programs.
"""
