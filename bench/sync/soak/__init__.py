"""Random databases kept in sync by real processes that are killed, by seed: `make soak-sync`.

Read ``tables`` (random tables, rows and DDL), then ``seeds`` (one seed's work, and the comparison).
A node, the sides of a sync and servers are killed.
Nothing of `canopy.sync` judges: both databases are read by their own drivers as text
(``harness.databases``).
"""
