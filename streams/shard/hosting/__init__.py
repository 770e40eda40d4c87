"""The shards that this node has.

*Promises*: a node has the shards that their owners ordered it to have, and those that were on its
disk at its start; a shard is destroyed only by an order that names a removed stream, or when its
own log no longer names this node (docs/design/streams.md).

*Called by*: `streams.machines` builds it; `streams.services` ask it for the replica that leads a
shard.

*Read in this order*: `shard_hosts`: replicas by shard, orders and reports. `log_checks`: their logs
read slowly, to find damage; `asked_checks`: read when somebody asks for it.
"""
