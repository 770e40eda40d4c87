"""Syncs without processes: ``memory`` is a stream in memory, ``pairs`` brings random changes from
one database to another through it, and ``duck`` is DuckDB as a destination.
"""
