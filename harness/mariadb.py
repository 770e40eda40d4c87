"""A MariaDB server on a socket of its own, for tests and measurements."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pymysql

from harness.postgres import NoServerError

PATIENCE = 60.0  # seconds
SETTINGS = (
    *("skip-networking", "skip-grant-tables", "log-bin=binlog", "server-id=1"),
    *("binlog-format=ROW", "binlog-row-image=FULL", "binlog-row-metadata=FULL"),
    *("innodb-buffer-pool-size=64M", "innodb-log-file-size=64M", "innodb-fast-shutdown=2"),
    *("character-set-server=utf8mb4", "max-allowed-packet=64M"),
)
FAST = ("innodb-flush-log-at-trx-commit=0", "sync-binlog=0", "innodb-flush-method=nosync")

POSITIONS = (  # of replicas, a table that a server looks for before it sends its log
    "SET SESSION sql_log_bin = 0",
    "CREATE DATABASE mysql",
    "CREATE TABLE mysql.gtid_slave_pos (domain_id int unsigned NOT NULL, sub_id bigint unsigned "
    "NOT NULL, server_id int unsigned NOT NULL, seq_no bigint unsigned NOT NULL, "
    "PRIMARY KEY (domain_id, sub_id))",
)


class MariadbServer:
    """A server on a socket in a folder of its own. It has no system tables and lets everybody in,
    which takes it half a second of processor time, and not the five of `mariadb-install-db`."""

    def __init__(self, *settings: str) -> None:
        """`settings`: as `sync-binlog=1`; without them it is fast, and loses what a crash would."""
        program = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if program is None:
            raise NoServerError("no MariaDB here: apt-get install mariadb-server")
        self._program = program
        self._settings = settings or FAST
        self.folder = Path(tempfile.mkdtemp(prefix="canopy-my-"))
        (self.folder / "data").mkdir()
        self.socket = str(self.folder / "socket")
        self.databases = 0
        self.start()
        with pymysql.connect(unix_socket=self.socket, user="root") as link:
            for statement in POSITIONS:
                link.query(statement)

    def start(self) -> None:
        flags = [f"--{each}" for each in (*SETTINGS, *self._settings)]
        user = ["--user=root"] if os.geteuid() == 0 else []
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                [
                    *(self._program, "--no-defaults", *user, f"--datadir={self.folder}/data"),
                    *(f"--socket={self.socket}", f"--pid-file={self.folder}/pid", *flags),
                ],
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + PATIENCE
        while True:
            try:
                with socket.socket(socket.AF_UNIX) as trial:  # pymysql leaves one that fails open
                    trial.connect(self.socket)
                return
            except OSError:
                if time.monotonic() > until or self.process.poll() is not None:
                    said = (self.folder / "log").read_text()[-500:]
                    self.stop()
                    raise NoServerError(f"mariadbd does not start here: {said}") from None
                time.sleep(0.05)

    def url(self, database: str) -> str:
        return f"mariadb://root@localhost/{database}?unix_socket={self.socket}"

    def database(self) -> str:
        """A new database: its name."""
        self.databases += 1
        name = f"t{self.databases}"
        with pymysql.connect(unix_socket=self.socket, user="root") as link:
            link.query(f"CREATE DATABASE {name}")
        return name

    def settle(self) -> None:
        """End it in order and start it again: before, files that it has just made may not outlive
        a `kill`."""
        with pymysql.connect(unix_socket=self.socket, user="root") as link:
            link.query("SET GLOBAL innodb_fast_shutdown = 1")
            link.query("SHUTDOWN")
        self.process.wait(PATIENCE)
        self.start()

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        shutil.rmtree(self.folder, ignore_errors=True)
