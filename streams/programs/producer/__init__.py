"""Producers: appending to a shard's log so that each row is there once.

*Promises*: rows that were answered with `RowsAppended` are at the offsets of their receipt for
ever; a request that is repeated with the same numbers appends nothing twice; rows of one session
are in the order of their numbers; a session that a newer one has ended appends nothing any more
(docs/design/streams.md#producers).

*Called by*: `streams.machines` builds `Producers`, for the node's programs. What a shard's leader
does is in `streams.services.append`.

*Read in this order*:

* `messages`: between a producer's node and a shard's leader.
* `numbers`: what a producer's numbers say of a batch: new, repeated, out of sequence, fenced.
* `row_queue`: a producer's node: batches of one session, their numbers, the requests under way.
  `fork_detour`: where they go while the shard has no leader. `sending`: the session with the leader
  (`streams.access.session`). `producers`: all of them, and the programs that they serve.
"""
