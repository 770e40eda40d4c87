"""Appending: what producers ask of a shard's leader.

*Promises*: those of `streams.producing`, where producers and the messages are.

*Called by*: `streams.machines` builds `AppendServer`; `streams.services.fork` has it append what is
queued.

*Read in this order*: `appender`: one shard that this node leads: requests to chunks, commits to
answers. `append_server`: all of them.
"""
