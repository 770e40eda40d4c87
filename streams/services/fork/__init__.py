"""Forks: a shard without a majority of its replicas takes rows all the same (V6).

Only for streams that were founded with `--prefer availability`. A *fork* is a log of its own with
one replica, the *holder*: a replica of the shard that has been without a leader, or that leads
without a majority, for `FORK_AFTER` seconds. It takes rows of producers, acknowledges them with
receipts that name the fork, and is copied into the main log when a majority answers again.

*Promises*: each row that a fork has acknowledged comes into the main log once, unless the holder's
disk is lost; the rows of one producer in one fork come in the order of its numbers; committed rows
of the main log do not change. A row is identified by its producer's number and its content. A row
that the main log has already (it was in flight when the network broke) is not appended again; a row
whose number other rows have (two programs of one name at two sides) is appended without the number,
and counted.

*Called by*: `streams.machines` builds both machines; producers' nodes (`streams.programs.producer`)
ask for forks.

*Read in this order*: `forks`: the holder's side: open, close, send for copying, remove.
`fork_copies`: the leader's side: what the main log lacks of a fork's rows is appended.
"""
