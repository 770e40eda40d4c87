"""PostgreSQL and MariaDB as both sides of a sync use them.

``postgres_values`` and ``mariadb_values`` have their values as text (no IO), ``postgres_catalog``
the columns of a table in PostgreSQL's catalogue, and ``mariadb_link`` connections to MariaDB, its
catalogue and its log.
"""
