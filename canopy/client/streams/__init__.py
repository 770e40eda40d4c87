"""What a program does with durable streams (no IO).

*Promises*: each call asks the node and returns what it answered; where the node goes away, what may
be repeated is, and of the rest the error says that it is not known (docs/guide/streams.md).

*Called by*: `canopy.client.client`.

*Read in this order*: `producer`: events into streams, as a producer or not. `transaction`: events
that are decided later. `reading`: events by content, from `positions`. `membership`: events shared
in groups. `management`: streams as a whole. `newest`: the stream with the newest events of a
selector. `descriptions`: options of streams and groups, in sentences.
"""
