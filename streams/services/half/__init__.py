"""Half messages: what those who prepare and decide ask of a shard's leader.

*Promises*: those of `streams.transactions`, where transactions and the messages are.

*Called by*: `streams.machines` builds `TransactionServer`.

*Read in this order* (what the log says of halves is folded by `streams.log.half_state`): `halves`:
one shard that this node leads: prepare, decide, review, list. `transaction_server`: all of them.
"""
