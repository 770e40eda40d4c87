"""Trace records and their analysis: `schema` (the records), `writer`, `analysis` (PySpark)."""
