"""Random databases kept in sync by real processes that are killed, by seed: `make soak-sync`.

Read ``tables`` (random tables, rows and DDL), ``processes`` (a node and the sides of a sync, each
of which can be killed, as can servers), then ``seeds`` (one seed's work, and the comparison).
Nothing of `canopy.sync` judges: both databases are read by their own drivers as text
(``harness.databases``).
"""
