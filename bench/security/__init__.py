"""What keys cost: throughput and latency with TLS and without, handshakes, joining."""
