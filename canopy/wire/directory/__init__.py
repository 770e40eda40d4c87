"""The Kademlia directory: names to addresses, on loopback (T5, docs/design/chord-ring.md).

``discovery`` is what a node announces and looks up; ``directory`` runs the library in a thread and
checks what it returns; ``kademlia_fixes`` corrects faults of the library. It helps nodes to find
each other and is never needed: a node with a reachable seed works without it.
"""
