"""Readings at a shard's leader: it matches the log with selectors, and sends the matching rows.

*Promises*: those of `streams.programs.reader`, where readers and the messages are.

*Called by*: `streams.machines` builds `ReadServer` and `RowFactsServer`; readers' nodes send
messages.

    readings = server.shard(message.shard)    # ShardReadings; None: this node does not lead it
    readings.on_read_shard(sender, message)   # a reading begins in the history …
    readings.step(budget)                     # … and joins the tail at the end of the log
    readings.on_keep_readings(sender, more)   # its node has it still, and gives it credit
    readings.durable.move(name, attachment, position, end, then)

*Read in this order*:

* `chunk_rows`: rows of chunks, as readers are sent them.
* `history`: a reading behind the end of the log, which chunks a selector cannot match anything in,
  and whether rows are past their time; `table_scan`: a reading that begins with the newest row of
  each key. `tail`: one reading, and all readings at the end of the log, matched together.
* `positions`: which offsets the log has, and single rows. `row_facts`: what became of one row, and
  trace records of committed rows.
* `durable`: durable consumers in the log: attachment, fencing, positions, expiry.
* `shard_readings`: all readings at one shard, with rows of several in one message, and all such
  shards.
"""
