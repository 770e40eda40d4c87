"""Readings at a shard's leader: it matches the log with selectors, and sends the matching rows.

*Promises*: those of `streams.programs.reader`, where readers and the messages are.

*Called by*: `streams.machines` builds `ReadServer` and `RowFactsServer`; readers' nodes send
messages.

*Read in this order*:

* `expiry`: whether a row is past its time.
* `chunk_rows`: rows of chunks, as readers are sent them. `shared_rows`: rows of several readings in
  one message. `chunk_filter`: which chunks a selector cannot match anything in.
* `reading`: one reading. `history`: a reading behind the end of the log; `table_scan`: a reading
  that begins with the newest row of each key. `tail`: all readings at the end of the log, matched
  together, by `tail_index`.
* `positions`: which offsets the log has, and single rows. `row_facts`: what became of one row.
* `durable`: durable consumers in the log: attachment, fencing, positions, expiry.
* `shard_readings`: all readings at one shard. `read_server`: all such shards.
"""
