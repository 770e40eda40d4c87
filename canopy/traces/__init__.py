"""Trace records and their analysis (docs/design/traces.md).

``schema`` has the kinds of records and their fields, ``writer`` writes a node's records (it is used
by `canopy.wire` and `canopy.sim`), and ``analysis/`` is the PySpark job that reads the records of
all nodes. ``health_file`` is what it finds of nodes' health, for nodes to load, and ``otlp`` sends
records to OpenTelemetry. These share nothing but the schema, so that the analysis judges
independently.
"""
