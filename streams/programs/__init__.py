"""Requests of programs to their node's streams, each part a conversation with shards' leaders on
`streams.access`.

*Called by*: `streams.machines` builds the machines; programs reach them by commands.

*Read in this order*:

* `producer`: appends rows, once and in order.
* `reader`: readings, alone or at a position that the stream keeps.
* `group`: memberships of consumer groups.
* `transaction`: half messages: prepared, and decided later.
* `questions`: what operators ask of leaders: groups, dead letters, what became of a row.
"""
