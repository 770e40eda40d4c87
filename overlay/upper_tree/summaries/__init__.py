"""Summaries of trees, cached at publishers and kept coherent by owners (C5, C9, P4).

Promises: an event that is published after a registration's SUBACK is not skipped by a cached
summary that does not admit the registration. That holds when the owner's cluster elects another
primary, splits, or is lost and restored.

It stands above ``owner``, which knows it only as the Protocol `Summaries` in
owner/registrations/registry.py: `before_suback` invalidates what contradicts a new registration,
`is_admitted` says when that is done, and after the loss of an owner `CacheHolders` asks those whom
the log names. At the other end publisher/summary_cache.py holds the copies and answers `may_skip`.

Read in this order:

* ``summary_server``: makes summaries in small pieces, answers publishers, and invalidates before a
  SUBACK.
* ``cache_holders``: which publisher has a copy of which tree's summary, and until when; which have
  copies at all is in the log, for the next primary.
* ``constants``: the measures of all that.

The format is in upper_tree/summary.py; docs/design/attribute-trees.md has the reasons.
"""
