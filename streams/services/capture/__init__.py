"""Capture by content: published events that match a stream's selector are appended to it.

*Promises*: an event that was published after the capture was acknowledged is in the stream once, as
long as one node that had got it lives until a leader has committed it; no event is there twice
within the bounds of `streams.log.origins` (docs/design/streams.md#capture).

*Called by*: `streams.machines`, which builds `Captures` in every node.

*Read in this order*: `shard_capture`: one shard at one of its replicas: events that wait, and
events that are appended. `captures`: the subscriptions of all shards of this node.
"""
