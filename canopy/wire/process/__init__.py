"""A node as an operating-system process: from the configuration to the exit code.

`canopy node` and ``python node.py`` call `node_process.run_node`. Read in this order:

- ``node_process`` `run_node` and `NodeProcess`: opens everything in order, carries out the commands
  that concern the process, handles signals, drains and leaves;
- ``listener`` the TCP port, and the limit of open files;
- ``machine_load`` the load of the machine, and the settings of the C library and of Python's
  garbage collector at start and when the node is ready;
- ``matching_setup`` prepares the compiled matching engine beside the running node;
- ``supervision`` monitoring: the listener of `canopy.wire.admin`, and systemd;
  ``reload`` reads the configuration again; ``config_keys`` describes its keys;
- ``security`` the keys of the running node: TLS contexts, trusted documents, renewals, revocations;
- ``health_watch`` reads the health file again when it has changed, and ``trace_shipper`` sends the
  trace records to a stream;
- ``copies`` handles another process with the same node id;
- ``telemetry`` samples this machine, ``feed`` publishes the samples as events.
"""
