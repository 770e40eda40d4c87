"""All faults that can be planted, by layer: importing this module fills `FAULTS`."""

from bench.gateway import gateway_faults
from bench.mutations import (
    chord_faults,
    gap_faults,
    health_faults,
    host_faults,
    hot_value_faults,
    lower_faults,
    order_faults,
    process_faults,
    publisher_faults,
    question_faults,
    region_faults,
    subscriber_faults,
    terminal_faults,
    trace_faults,
    tree_faults,
    turn_faults,
)
from bench.mutations.planting import FAULTS, PlantedFault, plant
from bench.node import registering_faults
from bench.processes import operating_faults
from bench.security import lying_faults, program_faults, security_faults
from bench.streams import (
    consuming_faults,
    directory_faults,
    expiry_faults,
    fork_faults,
    group_faults,
    mending_faults,
    producing_faults,
    retention_faults,
    spark_faults,
    table_faults,
    transaction_faults,
)
from bench.streams import faults as stream_faults
from bench.sync import sync_faults

__all__ = [
    "FAULTS",
    "PlantedFault",
    "chord_faults",
    "consuming_faults",
    "directory_faults",
    "expiry_faults",
    "fork_faults",
    "gap_faults",
    "gateway_faults",
    "group_faults",
    "health_faults",
    "host_faults",
    "hot_value_faults",
    "lower_faults",
    "lying_faults",
    "mending_faults",
    "operating_faults",
    "order_faults",
    "plant",
    "process_faults",
    "producing_faults",
    "program_faults",
    "publisher_faults",
    "question_faults",
    "region_faults",
    "registering_faults",
    "retention_faults",
    "security_faults",
    "spark_faults",
    "stream_faults",
    "subscriber_faults",
    "sync_faults",
    "table_faults",
    "terminal_faults",
    "trace_faults",
    "transaction_faults",
    "tree_faults",
    "turn_faults",
]
