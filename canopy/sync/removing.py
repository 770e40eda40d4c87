"""Takes what a sync has put into its databases out of them, also of one that was never right.

A source is not opened for that as for capturing, which looks at tables and settings first: a sync
is removed just because these are wrong.
"""

from __future__ import annotations

from contextlib import closing

from canopy.sync.opening import conninfo, is_missing, kind_of, open_destination, path_of


def remove_from_source(name: str, url: str) -> None:
    """Triggers and log, or publication and slot. Raises what the driver does."""
    kind = kind_of(url)
    if is_missing(url):
        return
    if kind == "sqlite":
        from canopy.sync.sources.sqlite import open_sqlite, remove_reader

        with closing(open_sqlite(path_of(url))) as database:
            remove_reader(database, name)
    elif kind == "postgresql":
        from canopy.sync.sources.postgres import remove_slot

        remove_slot(name, conninfo(url))
    elif kind == "mariadb":
        from canopy.sync.sources.mariadb import remove_tables

        remove_tables(url)


def remove_from_destination(name: str, url: str) -> None:
    """The position. Raises what the driver does."""
    if not is_missing(url):
        with closing(open_destination(name, url)) as target:
            target.remove()
