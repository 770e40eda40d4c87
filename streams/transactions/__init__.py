"""Half messages (V4): events that are durable before it is decided whether they happen.

*Promises*: a half is seen by nobody until it is committed, and gets its offsets then; whoever
decides it first decides it for ever; a decision names its transaction and touches no other; a half
that nobody decides stays, is parked, and alarms: it is never dropped (docs/design/streams.md).

*Called by*: `node.py` builds `TransactionServer`, for shards that the node leads, and
`Transactors`, for its programs.

*Read in this order*:

* `messages`: between a producer's node and a shard's leader.
* `halves`: one shard that this node leads: prepare, decide, review, list. `transaction_server`: all
  of them. (What the log says of halves is folded by `streams.log.state`.)
* `questions`: a program's node: what it asks of leaders, until they answer. `transactors`: its
  programs' transactions, and what leaders ask of these.
"""
