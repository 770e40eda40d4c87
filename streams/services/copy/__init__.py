"""Streams that copy others: from sources they take matching rows; a mirror has all rows of another.

*Promises*: each row of an origin that matches the selector is appended once, in the order of its
shard, through changes of leaders on both sides; a mirror's rows have the offsets of its origin
(docs/design/streams.md#sources-and-mirrors).

*Called by*: `streams.machines`, which builds `Copies` in every node.

*Read in this order*: `origin`: one shard of an origin, read for one shard that this node leads.
`shard_copy`: makes chunks of the rows. `copies`: all shards of this node.
"""
