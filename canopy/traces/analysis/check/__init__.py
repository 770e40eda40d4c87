"""`canopy trace check`: what a trace folder has and lacks, without Spark and without a verdict.

An analysis needs a Java and minutes; whether the traces of all nodes were collected whole is known
after one reading of the files, by the rules of ``parsing/lines``. In that order: ``gather`` has the
facts of one file, the same as Spark gathers in ``completeness/collect``; ``job`` has
``completeness/`` conclude from these facts, as an analysis does; ``findings`` says it in sentences,
also what is there twice; ``result`` is what a check returns. A test holds the numbers against those
of an analysis of the same folder.
"""

from canopy.traces.analysis.check.job import OnFile, check
from canopy.traces.analysis.check.result import COMPLETE, FINDINGS, NOTHING, TraceCheck

__all__ = ["COMPLETE", "FINDINGS", "NOTHING", "OnFile", "TraceCheck", "check"]
