"""What a node serves over HTTP to who watches it: Prometheus, Kubernetes, a load balancer.

Off unless `metrics.listen` is set. It only answers questions, and names neither events nor
selectors; whoever reaches the port may ask.

Read in this order: ``http`` (requests and answers, bounded; /livez and /readyz), ``metrics`` (what
/metrics has, with the help texts of the page counters.md), ``turn_times`` (how long turns
take).
"""
