"""Frames, codec, and TCP connections over trio."""
