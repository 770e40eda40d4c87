"""Shared by all tests. Helpers live in ``tests.support``; the project's root is on the path.

A shell starts background jobs with SIGINT ignored, and processes hand that on to their children: a
suite that runs in the background would wait for ever for the processes that it interrupts.
"""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
