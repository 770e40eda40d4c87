"""Spark for an analysis: ``java`` finds a Java that it runs on, ``session`` starts and ends it
and keeps the classes that it loads, ``paths`` says where files are.

A session is silent, stays on loopback and removes its files, unless an analysis is given a cluster
(``--master``). Nothing here knows traces.
"""
