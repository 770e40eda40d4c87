"""All IO of a node. trio and the ``kademlia`` package are used here and nowhere else.

Read in the order of the data flow:

- ``framing`` bytes to frames and back, ``codec`` messages to bytes and back (both without IO);
- ``connection`` one TCP connection; ``driver`` the node's `Driver` over trio;
- ``control`` the Unix socket for programs, ``client`` its other side (plain blocking sockets, so
  that a command line or a terminal UI needs no trio);
- ``folder`` the data folder: lock, identity, stored records; ``config`` what a user may set;
  ``log`` structured lines on standard error;
- ``telemetry`` samples this machine, ``feed`` publishes the samples;
- ``directory`` the phone book over Kademlia (``kademlia_mends``), ``finding`` what a node asks it;
- ``process`` puts them together: `run_node`.
"""
