"""What keys cost: throughput and latency with TLS and without, handshakes, joining.

Faults in ``*_faults`` are planted by bench/mutations.
"""
