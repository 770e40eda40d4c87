"""The control socket: how programs on this machine use the node (docs/reference/wire.md).

Read in this order: ``credit_window`` a client's credit, the queue that waits for it, and drops (no
IO); ``client_connection`` one program, with frames that may have to be sent again;
``client_output`` replies and deliveries to programs; ``remote`` admits programs on other machines
by their tokens, and ``scopes`` has the rights of tokens; ``server`` the socket, sessions without a
connection, and passing commands to the node. Called by canopy/wire/process/; the program's side is
canopy/client/.
"""
