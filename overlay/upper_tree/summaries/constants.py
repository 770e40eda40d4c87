"""Measures of keeping summaries, each with its origin or with what would measure it.

How long publishers may cache a summary is a setting, `tree.summary_term`, and so is a summary's
size, `tree.summary_boxes`. When a summary is made again is decided in owner/owned_tree.py.
"""

from __future__ import annotations

# --- cache_holders.py: copies ---

COPIES_MOST = 100_000
"""Remembered (attribute, publisher) pairs: about 30 MB at most. Not measured; would be measured by
how many publishers ask an owner of a large cluster within a term."""

# --- cache_holders.py ---

HOLDERS_MOST = 16_384
"""Cache holders that the log names: about 1 MiB of a snapshot. More publishers are answered, but
may not cache. Not measured; would be measured by the publishers of one cluster."""

KEEP_FOR = 60.0
"""Seconds that a publisher without a valid copy stays in the log: who publishes now and then would
else be put in and taken out all the time. Not measured; would be measured by log entries per
hour."""

SWEEP_SHARE = 0.5
"""The share of the term that is the time between two looks for holders that have no valid copy any
more. Not measured; would be measured by its processor time with `HOLDERS_MOST` holders."""

REPORTS_TOGETHER = 0.5
"""Seconds within which holders that report no copy leave the log together. Not measured; ample for
reports that are on their way."""

# --- summary_server.py ---

LOCATIONS_MOST = 64
"""Virtual nodes of one tree that an answer names; of a larger tree only the root. Not measured;
would be measured by the size of answers against visits that are passed on."""

DEFERRED_MOST = 4_096
"""Questions that wait for the log, the oldest dropped first: who gets no answer asks again. Not
measured; would be measured by questions per commit of a busy owner."""

# --- summary_server.py: builder ---

AT_ONCE = 256
"""Registrations that are summarised in the turn of a question: 10 ms (measured)."""

COMPILED_AT_ONCE = 32
"""Selectors of a tree that was taken over that are compiled in one turn: some 10 ms (measured)."""
