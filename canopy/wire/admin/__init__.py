"""The HTTP service of a node for monitoring: Prometheus, Kubernetes, a load balancer.

It is off unless `metrics.listen` is set. It only answers questions, and names neither events nor
selectors; anybody who reaches the port may ask.

Read in this order: ``http`` (requests and answers, bounded; /livez and /readyz), ``metrics``
(/metrics, with the help texts of the page counters.md), ``turn_times`` (how long turns take).
"""
