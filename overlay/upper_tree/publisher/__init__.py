"""The publisher's side of the attribute trees (C3, C5, C7, C9; CBDLO sections 3 and 4).

Promises: an event that was admitted is kept until every tree that it visits has accepted it, or its
owner has said that the tree has no subscribers, or its summary that no subscriber can want it.
Silence, a lost link and `TreeMoved` send it again, so that hosts may match an event twice; the
interested node removes the duplicate. What is known here of trees is a hint, and may be wrong.

Called by programs (`Publications.publish`); it calls ``lower_random`` for walks, the ring for
owners, and sends `Visit` to hosts.

Read in this order:

* ``publisher``: from `publish` to `Accepted`.
* ``publications``: what programs publish, until it is answered; ``admission``: which events may be
  published, also by the schema of their type (whether there is room says ``pending_store``).
* ``pending_event``: the states of an event and one of its trees; which hosts are overdue.
* ``pending_store``: everything that is not accepted yet, what waits for which trees, and how much
  that may be: `tree.pending` pairs at most, and no more than hosts accept soon.
* ``routing_plan``: to which hosts the events of a batch go.
* ``tree_finder``, ``location_cache``: where trees are.
* ``summary_cache``: which visits are skipped.
* ``replicas``, ``load_prediction``: which of a virtual node's hosts is visited (P7), and which are
  suspected, since they are silent or answered `TreeMoved`.
* ``doubts``: acceptances of hosts that the tree's owner has not named so far.
* ``constants``: the measures of all that.

docs/design/attribute-trees.md and docs/design/timeliness.md have the reasons.
"""
