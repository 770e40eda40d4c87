"""What one real node costs: time per stage (`stages`), memory (`memory`), a subscriber that stalls
(`slow_subscriber`, `slow_reader`), very many selectors (`subscribing`) or a very long one
(`long_selector`), events that a host has matched (`receiving`), a second process that hosts
(`two_processes`), and a quick run of everything (`smoke`, `make bench`).
"""
