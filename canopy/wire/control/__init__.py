"""The control socket: how programs on this machine use the node (docs/reference/wire.md).

Read in this order: ``credit_window`` how much may be under way to one client, what waits and what
is dropped (no IO); ``client_connection`` one program, with what may have to be sent again;
``client_output`` what leaves for programs; ``remote`` lets programs on other machines in, by their
tokens, and ``scopes`` says what these allow; ``server`` the socket, the programs whose connection
is lost, and the way of commands to the node. Called by canopy/wire/process/; the program's side is
canopy/client/.
"""
