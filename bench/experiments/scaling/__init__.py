"""How throughput grows with the nodes that host, and how fast trees follow a burst (C6).

`plan` says what is run, `stage` has one overlay under load, `experiment` all of them. The nodes
are the product's own; processors are simulated.
"""
