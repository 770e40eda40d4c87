"""How nodes find each other beside their seeds: the Kademlia directory, names to addresses (T5,
docs/design/chord-ring.md), and multicast DNS on the local network.

``discovery`` is what a node announces and looks up; ``directory`` runs the library in a thread and
checks what it returns; ``kademlia_fixes`` corrects faults of the library. Without keys it is on
loopback. With keys it is on any address, and ``signed_records`` says what is kept and believed,
``signed_kademlia`` who is answered (docs/design/security.md). It helps nodes to find each other and
is never needed: a node with a reachable seed works without it. ``local_network`` is multicast DNS.
"""
