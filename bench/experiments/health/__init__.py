"""Health from logs, back into elections: what it is worth (`bench.experiments health`; T6).

``trial`` is one cluster with one node that is slow and near its disk's end, whose primary is lost;
``experiment`` runs trials with and without the health file. ``records`` writes what nodes measure
of themselves. ``faults`` simulates known faults of all kinds, from which a tree is learnt and by
which trees are judged (bench/health).
"""
