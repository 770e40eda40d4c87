"""Half messages (V4): events that are durable before it is decided whether they happen.

*Promises*: a half is seen by nobody until it is committed, and gets its offsets then; whoever
decides it first decides it for ever; a decision names its transaction and touches no other; a half
that nobody decides stays, is parked, and alarms: it is never dropped (docs/design/streams.md).

*Called by*: `streams.machines` builds `Transactors`; programs reach it by commands. What a shard's
leader does is in `streams.services.half`.

    prepare = PrepareEvents(1, "orders", "payment-17", "till-7", drafts)
    decide = DecideTransaction(2, "orders", "payment-17", commit=True)
    transactors.commands()[PrepareEvents](client, prepare)          # TransactionState: prepared
    transactors.commands()[DecideTransaction](client, decide)       # … committed, with receipts

*Read in this order*:

* `messages`: between a producer's node and a shard's leader.
* `transactors`: the transactions of a node's programs, as questions to leaders
  (`streams.access.ask`), and what leaders ask of programs.
"""
