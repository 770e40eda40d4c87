"""Where changes come from: one module for each kind of database.

A `Source` (``source``) hands out what a database has committed, in order; ``sqlite`` logs changes
by triggers (``sqlite_triggers``), ``postgres`` has the server decode its own log (``pgoutput`` is
what it says, ``replication`` the connection), and ``mariadb`` is sent its log as a replica is
(``binlog`` and ``binlog_cells`` decode it, ``mariadb_tables`` are its tables).
"""
