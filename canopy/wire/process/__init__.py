"""A node as an operating-system process: from the configuration to the exit code.

`canopy node` and ``python node.py`` call `node_process.run_node`. Read in this order:

- ``node_process`` `run_node` and `NodeProcess`: opens everything in order, carries out the commands
  that concern the process, handles signals, drains and leaves;
- ``listener`` the TCP port, and as many open files as the system allows;
- ``machine_load`` what the machine has left, and what the C library and Python's garbage collector
  are set to at start and when the node is ready;
- ``matching_setup`` prepares the compiled matching engine beside the running node;
- ``supervision`` what is told to who watches it: the listener of `canopy.wire.admin`, and, systemd;
  ``reload`` the configuration read again; ``config_keys`` what each of its keys means;
- ``security`` the keys of the running node: TLS contexts, who is believed, renewals, revocations;
- ``health_watch`` reads the health file again when it has changed, and ``trace_shipper`` sends the
  trace records to a stream;
- ``copies`` what it does when another process has its node's id;
- ``telemetry`` samples this machine, ``feed`` publishes the samples as events.
"""
