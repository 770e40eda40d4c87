"""The shards that this node has.

*Promises*: a node has the shards that their owners ordered it to have, and those that were on its
disk at its start; a shard is destroyed only by an order that names a removed stream, or when its
own log no longer names this node (docs/design/streams.md).

*Called by*: `streams.machines` builds it; `streams.services` ask it for the replica that leads a
shard.

*Read in this order*:

* `shard_hosts`: replicas by shard, owners' orders, and reports to them.
* `log_checks`: reads logs from end to end, slowly, to find damage, or when asked to.

::

    hosts = ShardHosts(port, disk, ring, wall)  # a machine: start() opens what is on disk
    hosts.on_keep_shards(owner, message)  # makes replicas, has one lead
    ...  # `ShardLed` when this node leads
    replica = hosts.leading("8f2c/0")  # None: this node does not lead that shard
    if replica is not None and replica.leader is not None:
        replica.leader.append_rows(heads, encoded, rows, now)
    hosts.leave()  # `ShardsReleased` when the shards go on without this node
"""
