"""One run, described as YAML: nodes, load, faults, stages and result.

Read `scenario` (the description), `run` (its stages: grow, subscribe, publish with faults, rest,
probe, judge, and the verdict), `fault_injector` (starts nodes and injects faults) and `result`
(with what routing cost). Loads: `workload` (the whole selector language), `range_load` (attributes
by a Zipf law and ranges, CBDLO section 5; for full nodes with ranges as wide as are needed).
`recorded_run` is what a trace folder contains, `replay` runs that again in another configuration.
"""
