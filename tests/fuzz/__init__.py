"""Fuzzers for everything that reads bytes from outside: `make fuzz`.

``targets`` names each parser, what it may raise, and inputs to begin with; anything else that it
raises, and memory or time without bound, is a bug. ``mutating`` makes inputs without help, which
the suite does some hundred times per target (test_fuzz.py); `python -m tests.fuzz` runs as long as
it is told, led by which lines inputs reach, and keeps what it learns under
build/fuzz/.
"""
