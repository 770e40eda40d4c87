"""Shared by all tests. Helpers live in ``tests.support``; the project's root is on the path."""
