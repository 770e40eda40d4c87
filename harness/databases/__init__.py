"""Databases with columns of every type and values of every kind, for tests and searches of syncs.

``drawing`` makes random values; each of the others knows one kind of database: which types of
columns it has, how a value is written in its SQL, and how rows are read without the code under
test.
"""
