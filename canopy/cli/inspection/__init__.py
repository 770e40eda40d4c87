"""Commands that ask a running node what it knows, and print the answers.

``show`` has `canopy status`, `peers`, `ring` and `where`: one node, and the overlay as it knows it;
``top`` is the whole overlay in one table, ``subs`` the subscriptions of all programs (`canopy subs
rm` ends them), ``why`` the reasons for which an event reached a subscription or did not, and what
became of a stream's row. (`canopy.cli.display` repeats such a look at intervals, drawn in the place
of the one before.)

Each command opens a connection (``canopy.cli.connect``), asks with a request of `overlay.client`,
and prints a table, or with ``--json`` the reply under its field names (``canopy.cli.output``). They
change nothing at the node, except `canopy subs rm`. Read ``show`` first.
"""
