"""The fast engine: many conjunctions in blocks of 512 bits, matched a cache line at a time."""
