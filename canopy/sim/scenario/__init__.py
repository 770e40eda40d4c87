"""One run, described as YAML: nodes, load, faults, stages and result.

Read `scenario` (the description), `run` (its stages: grow, subscribe, publish with faults, rest,
probe, judge, and the verdict), `fault_injector` (starts nodes and injects faults) and `result`
(with the cost of routing). Loads: `workload` (the whole selector language), `range_load`
(attributes by a Zipf law and ranges, CBDLO section 5). `recorded_run` reads a trace folder,
`replay` runs its events again in another configuration.
"""
