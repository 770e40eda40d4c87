"""The disk of a node's shards over real files: implements `streams.disk.LogDisk`.

*Promises*: a request is answered when what it asks for is durable, each shard's requests in their
order; requests that come during one fdatasync share the next one; a shard that the node has had is
never taken for a new one, and no folder is deleted but by `destroy` (docs/design/streams.md).

*Called by*: `canopy.wire.process` builds a `FileLogDisk`, `canopy.wire.driver` hands its answers to
the node.

*Read in this order*:

- ``shard_list``: which shards this node has, durable, and what of the folders it does not name;
- ``shard_files``: one shard's folder: segments, and hard state (its vote); what is synced when;
- ``log_disk``: requests, the thread that carries them out, and answers.
"""
