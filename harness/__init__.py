"""What tests and measurements both drive the product with. It needs neither of them.

Simulated: `overlays` grows whole overlays, and holds them against what is promised; `link_world`
has links over a network with faults (`list_codec` is their codec), `stream_world` whole nodes with
a stream (`logs` makes bytes of logs). `simulated_stream` is a program's face to it. `lying_node` is
a node with an attack of `attacks`.

Real: `real_overlay` has processes on loopback, `fault_proxy` stands between them, `recovery/` times
what they do after a fault. `postgres` and `mariadb` are servers on a socket (`lowered`: without
root's rights), and `databases/` has columns and values of every kind for them. `spark_cluster` is a
standalone cluster of Spark, a master and workers.
"""
