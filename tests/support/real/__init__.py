"""What starts real nodes: sockets, processes, the wall clock. All else is in `tests.support`.

`wire_rig` is one driver in the test's own process, with real sockets and an `echo_node`: a node
without an overlay, which delivers what it publishes. `echo_process` runs one as a process. For the
command line `fake_control` is a control socket behind which a script answers. `real_overlay`
starts whole nodes as processes on loopback, `proxied_overlay` puts a fault proxy or `namespaces`
(a network that loses packets) between them.

Each binds to loopback or to a namespace of its own on free ports and ends what it has started.
A real node costs seconds: what machines decide is tested in a `World` or in the simulator.
"""
