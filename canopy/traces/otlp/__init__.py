"""Trace records as spans of OpenTelemetry, for a collector or a viewer of distributed traces.

An event is part of a distributed trace if it has the attribute ``traceparent`` (W3C Trace Context),
as CloudEvents' extension for distributed tracing has it: the overlay carries it as it carries every
attribute, and never changes it. ``spans`` reads it, and makes the spans of such events from the
records of all nodes, ``export`` reads trace folders and writes OTLP/JSON.
"""
