"""Producers: appending to a shard's log so that each row is there once.

*Promises*: rows that were answered with `RowsAppended` are at the offsets of their receipt for
ever; a request that is repeated with the same numbers appends nothing twice; rows of one session
are in the order of their numbers; a session that a newer one has ended appends nothing any more
(docs/design/streams.md#producers).

*Called by*: `streams.machines` builds `Producers`; programs reach it by commands. What a shard's
leader does is in `streams.services.append`, which judges the numbers.

    producers.begin(client, BeginProducer(1, "orders", "till-7"))   # ProducerReady, with the number
    producers.append(client, AppendEvents(2, "orders", drafts))     # of the node's own producer
    session.add(rows, count, then)        # of one producer at one shard: queued, and numbered
    session.pump()                        # at most two requests to the leader are under way
    session.on_appended(sender, message)  # `then` is called for each batch

*Read in this order*:

* `messages`: between a producer's node and a shard's leader, or a replica that opens a fork.
* `row_queue`: batches of one session, their numbers, the requests under way.
* `append_session`: the conversation of one producer with the leader of one shard; where it appends
  while there is none.
* `producers`: all of them, and the programs that they serve.
"""
