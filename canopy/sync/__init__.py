"""Databases that are kept consistent over streams: `canopy sync`.

What it promises: what a source has committed is in each destination in the order of its commits, a
transaction as a whole, each once, whoever is killed at whichever moment; a value arrives as it was
(docs/design/sync.md). A *source* side turns changes of a database into events of a stream; a
*destination* side applies them, and its position commits in the same transaction as they do.

Read in this order, first what does no IO:

- ``values`` and ``changes``: what a change is, and its bytes in a stream;
- ``row_filter``: which rows belong to a sync; ``assembler``: from events to whole transactions;
  ``folded``: many changes as few statements; ``conversions``: values of one database for columns of
  another; ``dialects`` an object for each kind of database that says which;
- ``errors``: what can go wrong;

and then what does:

- ``stream`` the stream as both sides see it; ``servers``, ``sources`` and ``destinations``, folders
  with manuals of their own; ``capture`` and ``applier``, the two sides, ``conflicts`` of two-way
  sync; ``definitions`` what is to be kept in sync on a machine, ``databases`` by their URLs,
  ``runner`` of the sides in threads, ``verification`` that both have the same rows.

Called by `canopy sync` (canopy/cli). It knows the client library, and databases by their drivers,
which the extra `sync` brings and which are imported when they are used.
"""
