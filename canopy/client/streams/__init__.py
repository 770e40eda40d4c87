"""Durable streams, as programs use them (no IO).

*Promises*: each call asks the node and returns its answer. If the node goes away, requests that may
be repeated are repeated; for others the error says that the outcome is unknown
(docs/guide/streams.md).

*Called by*: `canopy.client.client`.

*Read in this order*: `producer`: appends of events, with or without a producer's name.
`transaction`: events that are decided later. `reading`: events by content, from `positions`.
`membership`: rows that the members of a group share. `management`: options of streams and groups,
also in sentences, and the stream with the newest events of a selector.
"""
