"""Trace records for tests of the analysis: `runs` writes those of an overlay, faults included,
`days` those of a week, of which parts come late."""
