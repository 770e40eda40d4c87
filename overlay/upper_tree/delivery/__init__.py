"""From a match to the interested nodes: delegated fan-out, relays, copy counts."""
