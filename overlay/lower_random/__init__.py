"""The forest floor: a random graph that keeps all nodes together, and walks on it (C1 to C4, C10).

Read in this order: ``messages`` and ``events`` (the vocabulary), ``buried`` (why the dead do not
come back by hearsay), ``view`` (C1: Cyclon's shuffle with ages, the gossip of ways into the ring),
``access_points`` (C2: who can enter an event into an attribute's tree), ``crawl`` (C3, C4: random
walks with a trace, blocking and recovery).

A node shuffles parts of its view with its neighbours all the time. The same two messages carry
access points and ring hints, so that all soft knowledge spreads at one rate and nothing else has
to be sent for it. Whoever looks for an attribute's tree asks its own table first, then walks.
"""
