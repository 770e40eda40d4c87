"""`python -m bench.papers`: every table and figure of the five papers, and the same measured here.

docs/lab/papers.md has the paper's numbers with their sections, ours from ``bench/results``, and
what differs. ``registry`` has all experiments, ``__main__`` runs them. ``capture``,
``transmission``, ``power``, ``unplugged``, ``features``, ``distribution`` and ``outages`` (over
``tiers``) measure; `bench.experiments` has the rest.
"""
