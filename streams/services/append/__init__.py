"""Appends at a shard's leader: requests of producers become chunks, and commits become answers.

*Promises*: those of `streams.programs.producer`, where producers and the messages are.

*Called by*: `streams.machines` builds `AppendServer`; producers' nodes send messages;
`streams.services.fork` has the queued requests appended.

*Read in this order*: `numbers`: what a producer's numbers say of a batch: new, repeated, out of
sequence, fenced. `appender`: one shard, and all shards that this node leads.
"""
