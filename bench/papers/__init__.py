"""`python -m bench.papers`: every table and figure of the five papers, and the same measured here.

*Promises*: each number of a paper is data with the section that it stands in; each number of ours
comes from a file in ``bench/results`` with the commit, the date and the load; what a page says of a
difference stands beside both.

*Read in this order*: ``experiment`` (what one is), ``registry`` with ``cbdlo``, ``phoenix``,
``venus``, ``minos`` and ``tensor`` (all of them), ``__main__`` (runs them), ``page``
(docs/lab/papers.md) and ``pictures``. The others measure: ``capture``, ``transmission``, ``power``
(over ``simulated_stream``), ``unplugged``, ``features``,
``distribution`` and ``outages`` (over ``tiers``).
"""
