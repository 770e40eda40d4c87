"""Durable logs that are subscribed to by content. Machines without IO (overlay/machine.py).

Every node has all of it; `machines` builds the machines and puts them together
(docs/design/streams.md says what is built). Read in this order:

* `log/`: chunks, segments, recovery of a shard's folder, the fold of a shard's state. Pure: bytes
  in, bytes out.
* `disk`: what a shard asks of its disk, and how that answers.
* `shard/`: the log of one shard at several nodes, and in `shard/hosting/` the shards of this node.
* `directory/`: which streams there are, and who is to lead their shards.
* `services/`: what a leader offers for its shards: appending, half messages, reading, newest rows,
  groups, capture, copies, forks.
* `access/`: the conversation of programs' nodes with the leaders of shards.
* `programs/`: what programs ask of their node: appending rows, each once; reading them by content;
  sharing them among members; half messages.
* `tenant_rules`: the rules for tenants' messages.
"""
