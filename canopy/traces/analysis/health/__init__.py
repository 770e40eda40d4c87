"""The health of nodes from their traces: Tensor's eight signals and its tree (T6,
docs/design/health.md).

``windows`` is the Spark job: one row per node and two minutes, of what is new in the trace files
for a job that follows them. ``history`` keeps the rows of the last half hour, also over several
rounds. ``signals`` has the thresholds, the eight signals and the paper's tree over them. ``job``
has the tree that Spark's DecisionTreeClassifier has learnt from simulated faults (``model.json``,
made by ``python -m bench.health.train``), puts the parts together and writes the health file.
"""
