"""What keys cost: throughput and latency with TLS and without, handshakes, joining.

The faults in ``security_faults`` and ``lying_faults`` are planted by bench/mutations.
"""
