"""What `bench.streams.peers` measures beside one another: servers and one program each.

*Promises*: every contestant appends the same rows; each says what an acknowledgement means
(`durable`); the rows are on three servers, which end with the stack that they were started on.

*Read in this order*: ``contestant`` (what all share), ``asking`` (what each is), ``canopy_stream``,
``jetstream``, ``jetstream_batch``, ``redis_stream``, ``rabbitmq``, ``rabbitmq_stream``;
``receiving`` (a program that reads, in a process of its own).
"""
