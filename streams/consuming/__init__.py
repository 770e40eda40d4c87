"""Consumers: reading a shard's committed rows by content, from anywhere in its log to its end.

*Promises*: within one reading each committed row that the selector is true for comes once, in the
order of offsets, and no other row comes; a position counts what was scanned, so that it moves on
where nothing matches; a durable consumer's position never goes back and never passes what its
program has confirmed (docs/design/streams.md#consumers).

*Called by*: `node.py` builds `ReadServer`, for shards that the node leads, and `Readers`, for its
programs.

*Read in this order*:

* `messages`: between a reader's node and a shard's leader.
* `pieces`: rows of a chunk as they are sent. `skipping`: which chunks a selector cannot match
  anything in, by their zone maps.
* `expiring`: rows that are past their time.
* `reading`: what a shard's leader knows of one reading. `history`: a reading on its way through the
  log; `table_scan`: one that begins with the newest rows. `tail`: all readings that are at its end,
  matched together, by `tail_index`; `sharing`: rows of several of them in one message.
* `positions`: which offsets are there, and single rows.
* `durable`: durable consumers in the log: attaching, fencing, positions, expiry.
* `shard_readings`: all readings at one shard that this node leads. `read_server`: all such shards.
* `explaining`: what became of one row.
* `cursor`: a program's node: one shard of a reading. `asked`: what a program wants. `asking`: how
  long it waits for leaders. `readers`: all of them, and the programs.
"""
