"""One shard's log at several nodes: Raft's replication over the segments of `streams.log`. What
both logs of a node decide alike is in `overlay.consensus`.

*Promises*: a committed chunk is in the log of every later leader, at the same number with the same
hash; replicas have the same bytes up to what is committed; an epoch has at most one leader
(docs/design/streams.md).

*Called by*: `streams.shard.hosting`. Who is to lead is decided outside (streams/directory/): it
calls `Replica.lead` with an epoch.

*Read in this order*:

* `messages`: what replicas say to each other, and the hard state that is on disk beside the log.
* `kept_chunks`: reads chunks of the log, from memory or disk.
* `stored_replica`: one replica's vote and log on disk: voting, adding, truncating, removing.
* `replica`: how it takes part: follows a leader, repairs, campaigns (from a majority's votes to the
  furthest log), leads.
* `leader`: appends, replicates, commits, changes the replicas. `retention`: which rows the leader
  removes.
* `repair`: fetches damaged chunks from other replicas.
* `hosting`: the shards of this node.

A replica, from its start to an append::

    replica = Replica(port, disk, "8f2c/0", founders)
    replica.start()  # `Opened` follows from the disk
    ...
    replica.lead(epoch)  # a campaign; `ShardLed` follows, or another node's higher epoch
    ...
    if replica.leader is not None and replica.serves:
        chunk = replica.leader.append_rows(heads, encoded, rows, now)
    ...  # `ShardCommitted` with a number at least that of the chunk
"""
