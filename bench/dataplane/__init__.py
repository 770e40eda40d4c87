"""The way of an event in real processes, beside what users would pick instead."""
