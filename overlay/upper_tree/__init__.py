"""Attribute trees: where events meet subscriptions (CBDLO's upper layer, C5 to C10).

Per attribute with subscriptions there is one tree over the attribute's values. It has three
kinds of participants, and a node can be all of them at once:

    subscriber                     owner                              host
    (registrar, receiver)          (owner, registry, rebalance)       (hosting)
        │  Register                    │ primary of the cluster           │ serves virtual nodes:
        ├─────────────────────────────►│ that owns SHA1("attr:"+name)     │ intervals, each with an
        │                              ├─ Assign, Install ───────────────►│ index of registrations
        │◄──────── Registered ─────────┤◄──────────── Assigned, Installed ┤
        │                                                                 │
    publisher (tree_finder, publisher)                                    │
        │  Walk, AskTree ──► where is the tree?                           │
        ├─ Visit ────────────────────────────────────────────────────────►│ match; or pass on along
        │◄─────────────────────────────────────────────────────── Accepted┤ the midpoint tree
        │                                                                 │
    interested node ◄──────────────────────────────────────────── Deliver ┤ once per node

Shared by all: ``messages``, ``inspection_messages`` and ``events`` (the vocabulary), ``partition``
(the map, the tree that follows from it, and in which order a node tries a virtual node's hosts),
``shards`` (a hot value is divided by its registrations), ``pivots`` (the attribute under which a
conjunction is registered) and ``summary`` (the format; C9), ``compiled_selectors``, ``host_load``
(what a host reports; P7; how many hosts a machine is worth), ``batches`` (what fits into a
message), ``visits`` (events for several trees in one message; what of a publisher's may come
another way), ``sliced_inbox`` (much work goes on a little in each turn), ``event_history`` (for
`canopy why`, and a digest of an event, for traces; the duplicate window is the receiver's). Where
nodes have keys: ``owner_claims`` (who speaks for a tree's owner), ``event_proofs`` (signatures of
events), ``confined_registrations`` (those of tenants). Each folder's manual is its `__init__`; read
``publisher``, ``host``, ``delivery``, ``subscriber``, then ``owner`` and ``summaries``, and
``clients`` for the programs.
"""
