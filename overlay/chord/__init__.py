"""The ring of clusters, and this node's role in one of them (MECHANISMS P1, P2).

The ring consists of clusters, not of nodes: a few nodes (five unless told) own the keys of an arc
together, as primary, standby and match brokers. There are as many clusters as the load needs; most
nodes may be in none. Two machines, each of a few files; read them in this order:

* `keys`, `messages`, `events`: places on the ring, the vocabulary on the wire, and upwards.
* **Ring** (`ring`): who owns a key? Pure state in `known` (cache of descriptions), `pointers`
  (predecessor and successor list) and `place` (which way next?); on it `lookups`, `repair`
  (corrected Chord) and `collecting` (a walk around the ring).
* **Clusters** (`clusters`): what is this node? `seat` (its role), `founding` (the first cluster),
  `recruiting`, `members` (coming and going), `handover` and `taking_over` (an arc goes to a new
  cluster, or all of it to an heir), and what makes a cluster survive its primary:
  `voting_messages` (the vocabulary), `journal` (what is on disk), `promises` (durable grants),
  `held` (a log), `following` (a voter's copy), `copying` (the primary's part: majorities, voters),
  `pulse` and `patience` (heartbeat, lease, how long silence may last), `election`; and what makes
  keys survive their cluster: `observing_messages`, `observers` (who keeps a copy of the log outside
  of the cluster, at its primary), `observing` (such copies, where they are kept),
  `recovery_messages`, `forks` (epochs that nobody granted), `lost` and `recovery` (who goes on),
  `succession` (what follows when this node leads, or somebody else does).

Two rules hold everything together. **Arcs decide, pointers route**: a primary owns what its own
description says, and pointers that are wrong cost only time. **Epochs fence**: whoever takes over
keys does so under a higher epoch, so of two descriptions that overlap the higher epoch is right,
and a primary that hears of one above its own stops serving. An epoch of an existing cluster is
granted by a majority of its voters, who store that first; a primary decides only while a majority
follows it. (Where no majority is left an epoch forks off.)
"""
