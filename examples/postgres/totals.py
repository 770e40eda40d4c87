"""Totals of a stream's orders in PostgreSQL: each order counts once, whatever is killed.

    canopy node &
    canopy stream add orders
    canopy sample orders | canopy pub --stream orders -
    python examples/postgres/totals.py orders postgresql+psycopg:///shop
    python examples/postgres/totals.py orders postgresql+psycopg:///shop --die 1     # and again

A batch of orders that are paid is added to the table `totals`, and the position behind it is
committed in the same transaction (`canopy.sinks.alchemy`). A program that is killed has committed
both or neither, so the next one goes on with the first order that is not counted. With `--die N`
the program kills itself within the transaction of its Nth batch, when the totals are written and
not committed. With `--follow` it goes on until Ctrl-C, else it ends when nothing more comes.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from contextlib import suppress

from sqlalchemy import create_engine, text

import canopy
from canopy.sinks.alchemy import SqlAlchemySink

IDLE = 3.0
"""Seconds without an order after which all that is there is counted."""

TABLE = """
CREATE TABLE IF NOT EXISTS totals (customer BIGINT PRIMARY KEY, orders BIGINT, total NUMERIC)
"""
ADD = """
INSERT INTO totals VALUES (:customer, 1, :total) ON CONFLICT (customer)
DO UPDATE SET orders = totals.orders + 1, total = totals.total + :total
"""
SHOW = "SELECT count(*), coalesce(sum(orders), 0), coalesce(sum(total), 0) FROM totals"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("stream")
    parser.add_argument("database", help="a URL of SQLAlchemy")
    parser.add_argument("--die", type=int, metavar="N", help="be killed within the Nth batch")
    parser.add_argument("--follow", action="store_true", help="go on until Ctrl-C")
    arguments = parser.parse_args()
    engine = create_engine(arguments.database)
    with engine.begin() as connection:
        connection.execute(text(TABLE))
    sink = SqlAlchemySink(engine, "totals")
    batches = 0
    with (
        suppress(KeyboardInterrupt),
        canopy.connect() as client,
        sink.read(client, arguments.stream, "state = 'paid'") as reading,
    ):
        while True:
            began = time.monotonic()
            events = reading.take(timeout=IDLE)
            if not events:
                if not arguments.follow and time.monotonic() - began >= IDLE:
                    break
                continue
            batches += 1
            with sink.transaction(reading) as connection:
                for event in events:
                    customer, total = event.attributes["customer"], event.attributes["total"]
                    row = {"customer": customer, "total": str(total)}
                    connection.execute(text(ADD), row)
                if batches == arguments.die:
                    os.kill(os.getpid(), signal.SIGKILL)
    with engine.begin() as connection:
        customers, orders, total = connection.execute(text(SHOW)).one()
    print(f"{orders} paid orders of {customers} customers, {total} in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
