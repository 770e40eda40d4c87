"""The directory of streams: their shards, replicas and leaders.

*Promises*: a stream's name belongs to one founding id, in the log of the cluster that owns the key
of the name; a removed stream keeps its name and its id, so that none of its shards comes back
(docs/design/streams.md). Nothing that is acknowledged depends on this folder: epochs and replica
sets are in the shards' own logs, and two nodes that are nominated at once do no harm.

*Called by*: `streams.machines`, which builds the machines; `streams.access.locator` asks for
programs' nodes.

    questions.ask(name, lambda ticket: AskStream(ticket, name), answered)

*Read in this order*:

* `entry`: a stream in the directory. `messages`: between nodes.
* `stream_owner`: the primary of the cluster that owns the stream's name: it founds, changes and
  removes streams, and answers where their shards are. `supervision`: who leads each shard, and
  which nodes replace lost replicas.
* `questions`: any node asks a stream's owner, until it answers; and whether a stream would copy
  itself.
* `commands`: programs' commands about streams, and their answers.
"""
