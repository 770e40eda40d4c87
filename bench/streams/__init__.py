"""Streams, measured and tried: ``peers`` beside other systems (``contestants``), ``idle``;
``endurance`` and ``retention`` with every row accounted for (``hostile``); and planted faults
(``*_faults``).
"""
