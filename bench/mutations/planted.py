"""All faults that can be planted, by layer: importing this module fills `FAULTS`."""

from bench.mutations import (
    chord_faults,
    delivery_faults,
    health_faults,
    host_faults,
    issuer_faults,
    lower_faults,
    lying_faults,
    process_faults,
    program_faults,
    ring_faults,
    security_faults,
    signing_faults,
    stranger_faults,
    trace_faults,
    tree_faults,
)
from bench.mutations.planting import FAULTS, PlantedFault, plant
from bench.streams import (
    consuming_faults,
    directory_faults,
    group_faults,
    producing_faults,
    retention_faults,
    transaction_faults,
)
from bench.streams import faults as stream_faults
from bench.sync import (
    sync_faults,
)

__all__ = [
    "FAULTS",
    "PlantedFault",
    "chord_faults",
    "consuming_faults",
    "delivery_faults",
    "directory_faults",
    "group_faults",
    "health_faults",
    "host_faults",
    "issuer_faults",
    "lower_faults",
    "lying_faults",
    "plant",
    "process_faults",
    "producing_faults",
    "program_faults",
    "retention_faults",
    "ring_faults",
    "security_faults",
    "signing_faults",
    "stranger_faults",
    "stream_faults",
    "sync_faults",
    "trace_faults",
    "transaction_faults",
    "tree_faults",
]
