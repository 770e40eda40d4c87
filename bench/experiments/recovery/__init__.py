"""How long an overlay takes to recover from a loss, in the simulator.

Read ``plan`` (whom it hits), ``verdict`` (how it is judged), ``trial`` (one of them, simulated),
and ``experiment`` (many of them). bench/recovery/measure.py does the same to real
processes.
"""
