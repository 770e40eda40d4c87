"""Streams, measured and tried: ``shard`` (a leader's own work), ``volume`` (much data, lost nodes),
``idle``, ``spark``; ``peers`` and ``content`` beside other systems (``contestants``); ``endurance``
and ``retention`` with every row accounted for (``hostile``); and planted faults (``*_faults``).
"""
