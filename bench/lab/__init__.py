"""The figures in docs/lab: measured rows are files, and the pages' tables are made from them.

`record` runs a command that prints JSON and keeps what it printed in ``bench/results/NAME.json``,
with the commit, the date, the processor and the machine's load. `tables` writes the tables of the
pages again from those files; a test fails when a page and its file differ, so a figure changes only
by being measured. `pictures` leaves those of the terminal UI and the report.
"""
