"""The host's side: a node serves virtual nodes, and matches the events that visit them (C6 to C9).

What a host promises: it matches an event by all registrations of the virtual node that contains the
event's value, or says that it does not serve it (`TreeMoved`); it serves a tree only while its
owner's lease lasts; and it obeys no owner of an older epoch. CBDLO sections 2 and 4 have virtual
nodes and routing among them, Phoenix the latency levels; docs/design/attribute-trees.md,
docs/design/delivery.md and docs/design/timeliness.md say what is done differently.

Read in this order: ``hosted_tree`` (what a host has of one tree, and the index of all),
``assigned_trees`` (what owners order, a little in each turn, fencing, and trees that events visit
together), ``host`` (what becomes of a visit, also without delivering; what waited when more hosts
came), ``orphaned_trees`` (what may be served, and trees whose owner was lost),
``host_offers`` (who asks this node to host), ``served_loads`` (what virtual nodes ask of it),
``visit_scheduler`` and ``urgency`` (which visit is matched when, and none of its events twice),
``visit_handler`` (one visit: match, pass on, give back, answer), ``acceptances`` (what publishers
hear of that), and ``shard_gatherings`` (an event whose value is cut into shards). ``constants`` has
every number that is no setting.

Owners call by messages; publishers send `Visit`; matched events go to delivery/. The hot path is
`Hosting.on_visit` to `VisitHandler.finish`: `python -m bench.lab.ledger --top 30` counts it.
"""
