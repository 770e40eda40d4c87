"""Fetches the USGS feed of all earthquakes of the past week over HTTPS.

The CBDLO paper (section 1) motivates its overlay with ShakeCast, which distributes such events.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from canopy.cli.constants import FETCH_LIMIT, FETCH_TIMEOUT
from canopy.cli.demo.errors import OfflineError

URL: Final = "https://earthquake.usgs.gov/earthquakes/feed/v1.0/summary/all_week.geojson"


def fetch(target: Path, url: str = URL, timeout: float = FETCH_TIMEOUT) -> Path:
    """Fetch the feed into the file `target` and return it. Raises OfflineError."""
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            data: bytes = answer.read(FETCH_LIMIT + 1)
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise OfflineError(
            f"cannot fetch the earthquakes ({reason}); without Internet use --feed telemetry, or "
            f"--feed FILE with a GeoJSON file of your own"
        ) from None
    if len(data) > FETCH_LIMIT or b'"FeatureCollection"' not in data[:4096]:
        raise OfflineError(f"{url} did not return a GeoJSON feed of earthquakes")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return target
