"""Streams with a key: the newest row of each value of an attribute, kept for ever.

*Promises*: the fold of the newest chunks of kind Table and of the rows from the floor on is, at any
offset from the floor on, the newest row of each key that no row has deleted; a key that was deleted
does not come back; no row goes below the floor that a registered consumer or group has not read,
unless the stream says so (docs/design/streams.md#newest-rows).

*Called by*: `streams.machines`; `streams.consuming` asks `TableServer.table` for readings that
begin with the newest rows.

*Read in this order* (what chunks of kind Table have in them is in `streams.log.table`):

* `writing`: the newest rows below a new floor are written again, then the floor is raised.
* `shard_table`: one shard that this node leads: its table in memory, kept up with the log.
* `table_server`: all such shards.
"""
