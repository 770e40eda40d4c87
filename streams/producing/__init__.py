"""Producers: appending to a shard's log so that each row is there once.

*Promises*: rows that were answered with `RowsAppended` are at the offsets of their receipt for
ever; a request that is repeated with the same numbers appends nothing twice; rows of one session
are in the order of their numbers; a session that a newer one has ended appends nothing any more
(docs/design/streams.md#producers).

*Called by*: `node.py` builds `AppendServer`, for shards that the node leads, and `Producers`, for
its programs.

*Read in this order*:

* `messages`: between a producer's node and a shard's leader.
* `numbers`: what a producer's numbers say of a batch: new, repeated, out of sequence, fenced.
* `appender`: one shard that this node leads: requests to chunks, commits to answers.
  `append_server`: all of them.
* `sending`: a producer's node: one session at one shard, its requests under way. `producers`: all
  of them, and the programs that they serve.
"""
