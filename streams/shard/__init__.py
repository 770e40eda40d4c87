"""One shard's log at several nodes: Raft's replication over the segments of `streams.log`. What
both logs of a node decide alike is in `overlay.consensus`.

*Promises*: a committed chunk is in the log of every later leader, at the same number with the same
hash; replicas have the same bytes up to what is committed; an epoch has at most one leader
(docs/design/streams.md).

*Called by*: `streams.shard.hosting`. Who is to lead is decided outside (streams/directory/): it
calls `Replica.lead` with an epoch.

*Read in this order*:

* `messages`: what replicas say to each other, and what is on disk beside the log.
* `local`: what the parts use of their replica.
* `kept_chunks`: chunks of the log, from memory or disk. `removal`: what a Cut removes.
* `replica`: vote, log and disk of one replica, and following a leader.
* `campaign`: from a majority's votes to the furthest log. `leader`: append, replicate, commit,
  change the replicas.
* `chunk_reader`: a leader's log, chunk by chunk.
* `retention`: which rows are removed. `hosting`: the shards of this node.
* `mending`: repairs damage from other replicas. `damage`: counts it. `checking`: reads a log from
  end to end. `setting_back`: positions after a loss that no replica could repair.

A replica, from its start to an append::

    replica = Replica(port, disk, "8f2c/0", founders)
    replica.start()  # `Opened` follows from the disk
    ...
    replica.lead(epoch)  # a campaign; `ShardLed` follows, or another node's higher epoch
    ...
    if replica.leader is not None and replica.serves:
        chunk = replica.leader.append(batches, now)
    ...  # `ShardCommitted` with a number at least that of the chunk
"""
