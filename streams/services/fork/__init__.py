"""Forks: rows that a shard takes in while no majority of its replicas can be reached (V6).

Only for streams that were founded with `--prefer availability`. A *fork* is a log of its own with
one replica, the *holder*: a replica of the shard that has been without a leader, or that leads
without a majority, for `FORK_AFTER` seconds. It takes rows of producers, acknowledges them with
receipts that name the fork, and is copied into the main log when a majority is there again.

*Promises*: each row that a fork has acknowledged comes into the main log once, as long as the
holder's disk is not lost; of one producer in the order of its numbers, as far as it appended to one
fork; what the main log has committed does not change. A row is known by its producer's number and
its content. One that the main log has already (it was under way when the network broke) is not
appended again; one whose number other rows have (two programs of one name at two sides) is appended
without the number, and counted.

*Called by*: `streams.machines` builds both machines; producers' nodes (`streams.producing`) ask for
forks.

*Read in this order*: `messages`; `forks`: the holder's side: open, close, send for copying, remove.
`joining`: what a fork knows of a producer that comes from the main log. `copied_rows`: which of a
fork's rows the main log lacks. `fork_copies`: the leader's side, which appends them.
"""
