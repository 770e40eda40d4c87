"""The overlay: every protocol of Canopy as a machine without IO.

Read in the order of the data flow: ``machine`` (what a machine is), ``links`` (sessions between two
nodes), ``lower_random`` (the random graph, access points, CRAWL), ``chord`` (clusters on a ring),
``upper_tree`` (attribute trees: publishing and subscribing). Each builds on those before it.

Beside them: ``consensus`` (the rules of replicated logs), ``settings`` (every number that a user
may set), ``client``, ``stream_client``, ``operator_commands`` and ``info`` (the commands of
programs and their replies; ``client_types`` lists them), ``command_faults`` (what is wrong with a
command, for programs and nodes), ``bounded`` (a dictionary with a bound), ``records`` (the format
of the state file), ``health`` (sub-healthy nodes), ``regions``, ``phrases`` (numbers in sentences),
``driver`` (what a driver calls on a node, and what a node asks of its driver). ``rights`` says
which role may send which message; ``tenants`` guards what comes by it, and by content. Only node.py
uses ``turns`` (the dispatcher), ``incidents`` (what happened around this node, for people) and
``reports`` (`canopy status`).
"""
