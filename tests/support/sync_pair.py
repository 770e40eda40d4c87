"""One source and one destination, with a stream in memory between them."""

from __future__ import annotations

from canopy.sync.applier import Applier
from canopy.sync.capture import Capture
from canopy.sync.databases import open_destination, open_source
from canopy.sync.row_filter import RowFilter
from canopy.sync.verification import SyncComparison, VerifiedRows
from harness.postgres import Server
from tests.support.databases.memory import MemoryStream


def pg_url(server: Server, dsn: str) -> str:
    """The URL of a database that `Server.database` has made."""
    return f"postgresql://canopy@/{dsn.rpartition('=')[2]}?host={server.folder}"


class Pair:
    """Both sides of a sync."""

    def __init__(
        self, source: str, target: str, name: str = "kept", tables: tuple[str, ...] = ()
    ) -> None:
        self.stream = MemoryStream()
        self.source = open_source(name, source, tables)
        try:
            self.target = open_destination(name, target)
        except BaseException:
            self.source.close()
            raise
        self.capture = Capture(self.source, self.stream, RowFilter({}))
        self.apply = Applier(self.stream, self.target, RowFilter({}))

    def begin(self) -> None:
        self.capture.begin()
        self.apply.begin()
        self.go_on()

    def go_on(self, wait: float = 0) -> None:
        """Until nothing more has come within `wait` seconds, of which the first look takes as many
        as it needs."""
        target = self.source.target() if wait else 0
        while self.capture.run_once(wait / 10) or not self.source.reached(target):
            pass
        while self.apply.run_once(0):
            pass

    def verified(self, wait: float = 0) -> VerifiedRows:
        def pause(_: float) -> None:
            self.go_on(wait)

        comparison = SyncComparison(
            self.source, self.target, self.stream, RowFilter({}), pause=pause
        )
        return comparison.run(60)

    def close(self) -> None:
        self.apply.close()
        self.source.close()
        self.target.close()
