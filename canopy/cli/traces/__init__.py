"""`canopy trace`: the traces of all nodes. ``command`` has the group and the Spark analyses, of
deliveries and of health; ``check`` lists what the files have and lack, without Spark; ``prune``
removes files of old days; ``from_stream`` reads traces that nodes appended to a stream, ``export``
writes them for OpenTelemetry."""
