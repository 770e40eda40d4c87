"""Faults planted on purpose, to prove that the tests find faults.

`planting` (how: symbols of the product are replaced in the running process), a file of faults for
each part of the product (`chord_faults`, `host_faults` …), `planted` (all of them) and `check`
(whether the test that each names finds it). What came of them: docs/lab/mutations.md. What no
planted fault stands for `mutants` looks at: it changes the code at random.
"""
