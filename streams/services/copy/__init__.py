"""Streams that copy others: sources, of which some rows come in, and mirrors, the same rows again.

*Promises*: each row of an origin that the selector is true for is appended once, in the order of
its shard, through changes of leaders on both sides; a mirror's rows have the offsets that they have
in its origin (docs/design/streams.md#sources-and-mirrors).

*Called by*: `streams.machines`, which builds `Copies` in every node.

*Read in this order*: `origin`: one shard of an origin, as it is read for one shard that this node
leads. `shard_copy`: what was read becomes chunks. `copies`: all shards of this node.
"""
