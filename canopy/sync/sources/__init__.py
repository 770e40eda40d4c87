"""Sources of changes: one module for each kind of database.

A `Source` (``source``) hands out what a database has committed, in order; ``sqlite`` logs changes
by triggers (``sqlite_triggers``; ``sqlite_unique`` finds the rows that a new row replaces).
``postgres`` has the server decode its own log (``pgoutput`` parses its messages, ``replication`` is
the connection, ``postgres_tables`` the tables). ``mariadb`` is sent its log as a replica is
(``binlog`` and ``binlog_cells`` decode it, ``mariadb_tables`` are its tables, and
``mariadb_cascades`` the changes by foreign keys, which are not in the log). ``altered_rows`` sends
the rows of a table that was altered again.
"""
