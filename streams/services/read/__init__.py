"""Reading: what readers ask of a shard's leader.

*Promises*: those of `streams.consuming`, where readers and the messages are.

*Called by*: `streams.machines` builds `ReadServer`.

*Read in this order*:

* `expiry`: rows that are past their time.
* `reading`: what is known of one reading. `history`: a reading on its way through the log;
  `table_scan`: one that begins with the newest rows. `tail`: all readings that are at its end,
  matched together, by `tail_index`.
* `positions`: which offsets are there, and single rows.
* `durable`: durable consumers in the log: attaching, fencing, positions, expiry.
* `shard_readings`: all readings at one shard. `read_server`: all such shards.
"""
