"""Attribute trees: where events meet subscriptions (CBDLO's upper layer, C5 to C10).

Per attribute that anybody subscribes to there is one tree over the attribute's values. It has three
kinds of participants, and a node can be all of them at once:

    subscriber                     owner                              host
    (registrar, receiver)          (owner, registry, balance)         (hosting)
        │  Register                    │ primary of the cluster           │ serves virtual nodes:
        ├─────────────────────────────►│ that owns SHA1("attr:"+name)     │ intervals, each with an
        │                              ├─ Assign, Install ───────────────►│ index of registrations
        │◄──────── Registered ─────────┤◄──────────── Assigned, Installed ┤
        │                                                                 │
    publisher (finder, publisher)                                         │
        │  Walk, AskTree ──► where is the tree?                           │
        ├─ Visit ────────────────────────────────────────────────────────►│ match; or pass on along
        │◄─────────────────────────────────────────────────────── Accepted┤ the midpoint tree
        │                                                                 │
    interested node ◄──────────────────────────────────────────── Deliver ┤ once per node

Read ``messages`` (the vocabulary), ``partition`` (the map and the tree that follows from it),
``batches``, ``hosting``; then the owner's side: ``state``, ``owned``, ``owner``, ``registry``,
``balance``, ``told``, ``beliefs``, ``believers``, ``leases``; the publisher's: ``locations``,
``finder``, ``admission``, ``publisher``, ``bundles``; the subscriber's: ``registrar``,
``receiver``; and for people ``clients``, ``inspect``, ``explaining``, ``history``.
"""
