"""Half messages at a shard's leader: it keeps prepared rows, and appends or drops them.

*Promises*: those of `streams.programs.transaction`, where transactions and the messages are.

*Called by*: `streams.machines` builds `TransactionServer`; the nodes of programs that prepare and
decide send messages.

*Read in this order* (`streams.log.half_state` folds the halves' entries in the log): `halves`: one
shard: prepare, decide, review, list. `transaction_server`: all shards that this node leads.
"""
