"""Where changes go: one module for each kind of database.

A `Destination` (``destination``) applies what was folded, and keeps the sync's position in the same
transaction; ``sql`` is what databases have in common that know ``ON CONFLICT``, and each of the
others is the rest of one; ``alchemy`` takes any database for which SQLAlchemy has a dialect.
"""
