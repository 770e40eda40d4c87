"""What a program does with durable streams, in common to the faces (no IO).

*Promises*: each step asks the node and says what it answered; where the node goes away, what may be
repeated is, and of the rest it is said that it is not known (docs/guide/streams.md).

*Called by*: `canopy.client.synchronous` and `canopy.client.asynchronous`, which carry the steps
out.

*Read in this order*: `appending`: events into streams, as a producer or not. `transacting`: events
that are decided later. `reading`: events by content. `membership`: events shared in groups. `away`:
how long both look for their node.
`management`: streams as a whole. `wording`: options of streams and groups, in sentences.
"""
