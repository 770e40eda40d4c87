"""The disk of a node's shards over real files: implements `streams.disk.LogDisk`.

*Promises*: a request is answered when its effect is durable, each shard's requests in their order;
requests that arrive during one fdatasync share the next one; a shard that the node has had is never
taken for a new one, and only `destroy` deletes a folder (docs/design/streams.md).

*Called by*: `canopy.wire.process` builds a `FileLogDisk`, `canopy.wire.driver` passes its answers
to the node.

*Read in this order*:

- ``shard_list``: the durable list of this node's shards, and how other folders are treated;
- ``shard_files``: one shard's folder: segments, and hard state (its vote), and their syncs;
- ``log_disk``: requests, the thread that carries them out, and answers.
"""
