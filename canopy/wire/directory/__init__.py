"""Finds other nodes beyond the seeds: the Kademlia directory, names to addresses (T5,
docs/design/chord-ring.md), and multicast DNS on the local network.

``discovery`` has the node's announcements and lookups; ``directory`` runs the library in a thread
and checks its results; ``kademlia_fixes`` corrects faults of the library. Without keys the
directory is on loopback. With keys it is on any address: ``signed_records`` decides which records
are kept and believed, ``signed_kademlia`` which callers are answered (docs/design/security.md). The
directory is optional: a node with a reachable seed works without it. ``local_network`` is multicast
DNS.
"""
