"""The errors of a sync. The text says what a person has to do."""

from __future__ import annotations


class SyncError(Exception):
    """A sync cannot go on, or was set up wrongly."""


class SourceLostError(SyncError):
    """The source no longer has the changes since the stream's position: a replication slot is gone
    or was made again, or a database was restored. Only a new snapshot helps."""


class SchemaError(SyncError):
    """A table is not as it has to be: no primary key, a column that the destination lacks."""


class UnfitError(SyncError):
    """The destination has no place for a value of the source."""


class FencedError(SyncError):
    """Another process applies, or captures, for the same sync."""


class OpenStreamError(SyncError):
    """Anybody may append to the stream. It passes when the source's side has closed it."""


class MalformedError(SyncError):
    """An event of the stream is none that a sync has written."""
