"""The lower layer: a random graph that keeps all nodes connected, and walks on it (C1 to C4, C10;
CBDLO sections 2 and 3).

What it promises: the views of all nodes form a random graph that repairs itself under churn; each
node knows some access points and ways into the ring, all of which are hints; a walk ends within
`walk.timeout`, by a hit or a miss for each of its attributes. Called by node.py (messages and
timers), by the publisher's finder (`Crawl.walk`), by hosts (`AccessPoints.serve`) and by the
cluster machines (`View.peers`, `View.advertise_ring`). The design is docs/design/lower-random.md.

Read in this order: ``messages`` (the vocabulary, on the wire and upwards), ``view`` (C1: Cyclon's
shuffle, with which ways into the ring are gossiped), ``access_points`` (C2: which node can enter an
event into an attribute's tree), ``crawl`` (C3, C4: random walks with a trace, blocking and
recovery), ``relays`` (P3: the frames of links that are silent, by way of other nodes),
``documents`` (signed documents of the operators, passed on to all nodes: revocations, and the
policy, which ``policies`` applies). ``peer_records`` has addresses signed by their nodes, and
tombstones (why second-hand news does not bring the dead back); with it ``ranked_slots`` makes a
view where members may lie. ``clock_offsets`` asks neighbours for their wall clocks (`canopy
doctor`). ``constants`` has every number that is no setting.

A node shuffles parts of its view with its neighbours periodically. The same two messages carry
access points and ring hints, so that all soft knowledge spreads at one rate and costs no further
messages. A publisher that needs an attribute's tree asks its own table first, then walks.
"""
