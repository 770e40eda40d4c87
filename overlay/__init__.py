"""The overlay: every protocol of Canopy as a machine without IO.

Read in the order of the data flow: ``machine`` (what a machine is), ``links`` (sessions between two
nodes), ``lower_random`` (the random graph, access points, CRAWL), ``chord`` (clusters on a ring),
``upper_tree`` (attribute trees: publishing and subscribing). Each builds on those before it.

Beside them: ``settings`` (every number that a user may set), ``client`` and ``info`` (what a
program may ask of its node, and the replies), ``bounded`` (a dictionary with a bound), ``records``
(the format of the state file), ``wording`` (numbers in sentences), ``driving`` (what a driver calls
on a node, and what a node asks of its driver), and what only node.py uses: ``turns`` (the
dispatcher), ``incidents`` (what happened around this node, for people) and ``reports`` (`canopy
status`).
"""
