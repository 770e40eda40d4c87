"""Members that lie: what they can do, and what each defence is worth (`bench.experiments liars`).

``lying_node`` is the product's node, which lies in what it sends and in how it answers; ``attacks``
has the lies, by name; ``defences`` what is compared for each; ``trial`` is one overlay with a share
of liars; ``experiment`` runs trials over shares.

Liars are one adversary: they know each other and all honest nodes, and agree on what they say.
"""
