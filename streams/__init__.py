"""Durable logs that are subscribed to by content. Machines without IO (overlay/machine.py).

What is there so far is the foundation: the log of one shard, its files, and how they are checked
(docs/design/streams.md says what can be reached, and what cannot yet).

* `log/`: chunks, segments, recovery of a shard's folder, the fold of a shard's state. Pure: bytes
  in, bytes out.
* `disk`: what a shard asks of its disk, and how that answers.
* `replication/`: the log of one shard at several nodes. `producing/`: appending to it, once.
  `consuming/`: reading it by content.
"""
