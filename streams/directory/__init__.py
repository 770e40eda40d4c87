"""Which streams there are, where their shards are, and who leads each of them.

*Promises*: a stream's name belongs to one founding id, in the log of the cluster that owns the key
of the name; a stream that was removed keeps its name and its id, so that no shard of it comes back
(docs/design/streams.md). Nothing that is acknowledged depends on this folder: epochs and replica
sets are in the shards' own logs, and two nodes that are nominated at once hurt nobody.

*Called by*: `node.py`, which builds the machines; producers and consumers ask `locator`.

*Read in this order*:

* `entry`: what is known of a stream. `messages`: between nodes.
* `stream_owner`: at the primary of the cluster that owns the stream's name: founding, removing,
  answering where its shards are. `supervision`: who leads each shard, who replaces whom.
* `locator`: at any node: a stream's name to the leaders of its shards.
* `commands`: what programs ask of their node about streams; `describing`: how these are shown.
"""
