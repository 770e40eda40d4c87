"""/livez and /readyz, as Kubernetes and etcd have them: one line for each check.

*Live* means that the process works: its event loop turns. A process that is not is to be killed and
started again. *Ready* means that programs of this node are served: a node that is not may become so
by itself, and a restart does not help.

``/readyz`` answers 200 ``ok``, or 503 and a line for each check (``[+]disk ok``, ``[-]owner
failed: …``); ``?verbose`` names all of them in any case, ``?exclude=NAME`` leaves one out, and
``/readyz/NAME`` asks for one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import parse_qs

from canopy.wire.admin.http import NOT_FOUND, HttpAnswer, Request

OK: Final = 200
FAILING: Final = 503

Checks = Mapping[str, Callable[[], str]]
"""By name what is wrong, in words; "": nothing."""


def answer_checks(name: str, checks: Checks, request: Request) -> HttpAnswer:
    """The answer to ``/NAME`` or ``/NAME/CHECK``."""
    asked = request.path.removeprefix(f"/{name}").strip("/")
    query = parse_qs(request.query, keep_blank_values=True)
    if asked and asked not in checks:
        return HttpAnswer(
            NOT_FOUND, f"no check {asked!r}; there are: {', '.join(checks)}\n".encode()
        )
    left_out = query.get("exclude", [])
    chosen = [asked] if asked else [each for each in checks if each not in left_out]
    found = {each: checks[each]() for each in chosen}
    is_fine = not any(found.values())
    if is_fine and "verbose" not in query:
        return HttpAnswer(OK, b"ok\n")
    lines = [
        f"[-]{each} failed: {reason}" if reason else f"[+]{each} ok"
        for each, reason in found.items()
    ]
    lines += [f"[+]{each} excluded: ok" for each in left_out if each in checks and not asked]
    lines.append(f"{name} check {'passed' if is_fine else 'failed'}")
    return HttpAnswer(OK if is_fine else FAILING, ("\n".join(lines) + "\n").encode())
