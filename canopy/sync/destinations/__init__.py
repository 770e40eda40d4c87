"""Destinations of changes: one module for each kind of database.

A `Destination` (``destination``) is a sink that has a schema: it applies what was folded, and keeps
the sync's position in the same transaction. It does so over any DBAPI connection (``statements``
are those for a table). ``sqlite``, ``postgres`` (with ``postgres_sequences``), ``mariadb`` and
``duckdb`` are the rest of one kind of database each, and ``alchemy`` takes any for which SQLAlchemy
has a dialect. ``kept_values`` looks whether a table that was there
before keeps values as they are.
"""
