"""Streams with a key: the newest row of each value of an attribute, kept for ever.

*Promises*: the fold of the newest chunks of kind Table and of the rows from the floor on is, at any
offset from the floor on, the newest row of each key that no row has deleted; a key that was deleted
does not come back; no row goes below the floor that a registered consumer or group has not read,
unless the stream says so (docs/design/streams.md#newest-rows).

*Called by*: `streams.machines`; `streams.programs.reader` asks `TableServer.table` for readings
that begin with the newest rows.

*Read in this order* (`streams.log.table` has the content of chunks of kind Table):

* `writing`: writes the newest rows below a new floor again, then raises the floor.
* `shard_table`: the table of one shard in memory, kept up with the log.
* `table_server`: all shards that this node leads.
"""
