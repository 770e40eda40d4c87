"""Publishing drafts through the node, within the rights of a grant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from canopy.client.client import AsyncClient
from canopy.client.errors import ControlError
from canopy.gateway.access import Permission, RequestRefused
from canopy.gateway.constants import PUBLISH_TIMEOUT
from canopy.gateway.feeds import refusal
from overlay.client import Draft


def check_allowed(grant: Permission, drafts: Sequence[Draft]) -> None:
    """Raise RequestRefused unless the grant allows to publish every one of these drafts."""
    grant.check("publish")
    allowed = grant.may_publish()
    if allowed is None:
        return
    for place, draft in enumerate(drafts, 1):
        if not allowed.matches(draft.attributes):
            rule = f"the token {grant.name} allows to publish what matches: {grant.publish}"
            raise RequestRefused(403, f"event {place} is not among that: {rule}")


async def publish(
    client: AsyncClient,
    grant: Permission,
    drafts: list[Draft],
    stream: str = "",
    receipt: bool = False,
) -> dict[str, Any]:
    """Publish the events, or append them to a stream. Returns the answer for the client. Raises
    RequestRefused; some events may then be published, which the reason says."""
    check_allowed(grant, drafts)
    if stream:
        grant.check_stream(stream)
    try:
        if stream:
            appended = await client.append(stream, drafts, timeout=PUBLISH_TIMEOUT)
            places = [
                {"shard": one.shard, "first": one.first, "count": one.count}
                for one in appended.receipts
            ]
            return {"stream": stream, "appended": appended.count, "receipts": places}
        result = await client.publish_many(drafts, receipt=receipt, timeout=PUBLISH_TIMEOUT)
    except ControlError as error:
        found = refusal(error)
        found.about |= {"published": error.answered, "in_doubt": error.in_doubt}
        if error.answered or error.in_doubt:
            found.reason += (
                f"; the first {error.answered} events are published, "
                f"the next {error.in_doubt} may be"
            )
        raise found from None
    if result.refused:
        reasons = "; ".join(f"event {place + 1}: {reason}" for place, reason in result.refused[:20])
        done = f"{result.count} of {len(drafts)} events are published"
        raise RequestRefused(422, f"{done}; refused: {reasons}", published=result.count)
    told: dict[str, Any] = {"published": result.count, "events": list(result.identities)}
    if receipt:
        told |= {"accepted": result.accepted, "hosts": [dict(one) for one in result.hosts]}
    return told


async def publish_each(
    client: AsyncClient, grant: Permission, drafts: Sequence[Draft]
) -> list[RequestRefused | None]:
    """Publish unrelated events in one request. Returns for each the reason of its refusal, or
    None."""
    found: list[RequestRefused | None] = [None] * len(drafts)
    for place, draft in enumerate(drafts):
        try:
            check_allowed(grant, (draft,))
        except RequestRefused as error:
            found[place] = error
    places = [place for place, refused in enumerate(found) if refused is None]
    if not places:
        return found
    try:
        result = await client.publish_many(
            [drafts[place] for place in places], timeout=PUBLISH_TIMEOUT
        )
    except ControlError as error:
        for place in places[error.answered :]:
            found[place] = refusal(error)
        return found
    for number, reason in result.refused:
        found[places[number]] = RequestRefused(422, reason)
    return found
