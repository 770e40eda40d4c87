"""Sealed payloads: what a host that lies can do with them, and who can read the keys."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from canopy.client.errors import ControlError, DeniedError, EventRefusedError
from canopy.client.frames import OpaqueEvent
from canopy.client.seals import SEALING, labelled, open_seals, said_of, seal_of
from canopy.client.session import ControlSession
from canopy.wire.keys import seals
from canopy.wire.keys.seals import (
    HEAD,
    SEALED,
    SealFileError,
    Seals,
    add_key,
    forget_key,
    found_seals,
    read_seals,
    seal_with_newest,
)
from canopy.wire.transport.framing import COMMAND_FRAMES, REPLY_FRAMES, FrameReader
from overlay.client import (
    AppendEvents,
    Command,
    Delivered,
    Delivery,
    Draft,
    DryRun,
    Event,
    EventsTaken,
    Gathered,
    Publish,
    StreamEvent,
)
from overlay.stream_client import GroupRow, PrepareEvents, RowsTaken

SECRET = b"the patient's name"
ATTRIBUTES: dict[str, Any] = {"id": "e1", "type": "visit", "ward": 7, "dose": 1.5, "note": None}
Wrong = Callable[[Draft], Draft]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "acme.seal"
    found_seals(path)
    return path


def sent(file: Path | None, draft: Draft) -> Draft:
    """An event as the node of a program gets it, with the seal file of the program."""
    session = ControlSession("here", sealer=open_seals(file))
    (command,) = FrameReader(COMMAND_FRAMES).feed(session.encode(Publish(0, (draft,)), 1))
    assert isinstance(command, Publish)
    return command.events[0]


def event(draft: Draft) -> Event:
    return Event("n", 1, 1, 5.0, draft.attributes, draft.payload, draft.payload_type)


def came(file: Path | None, draft: Draft) -> Event:
    """An event as a program gets it from its node."""
    session = ControlSession("there", sealer=open_seals(file))
    session.receive(
        REPLY_FRAMES.encode(Delivered(0, (Delivery("s", event(draft), "", "", "", 1),)))
    )
    (found,) = session.take()
    return found.event


def test_a_payload_arrives_and_its_node_sees_none_of_it(file: Path) -> None:
    draft = Draft(ATTRIBUTES, SECRET, "text/plain")
    seen = sent(file, draft)
    assert seen.payload_type == SEALED
    assert seen.attributes == ATTRIBUTES
    assert SECRET not in seen.payload
    assert b"text/plain" not in seen.payload
    found = came(file, seen)
    assert (found.payload, found.payload_type, seal_of(found)) == (SECRET, "text/plain", "opened")
    assert found == labelled(event(draft), "opened")
    assert said_of(found) == "was sealed, and is opened"


def test_who_has_no_key_gets_a_mark_and_loses_nothing(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.seal"
    found_seals(other)
    seen = sent(file, Draft(ATTRIBUTES, SECRET))
    for known, seal in ((None, None), (other, "no-key")):
        found = came(known, seen)
        assert (found.payload, found.payload_type) == (seen.payload, SEALED)
        assert seal_of(found) == seal
        assert read_seals(file).seals in said_of(found)
        passed_on = sent(known, Draft(found.attributes, found.payload, found.payload_type))
        assert seal_of(came(file, passed_on)) == "opened"


LIES: dict[str, Wrong] = {
    "to another event": lambda d: Draft({**d.attributes, "id": "e2"}, d.payload, d.payload_type),
    "an attribute": lambda d: Draft({**d.attributes, "ward": 8}, d.payload, d.payload_type),
    "of another type": lambda d: Draft({**d.attributes, "ward": 7.0}, d.payload, d.payload_type),
    "one more": lambda d: Draft({**d.attributes, "x": None}, d.payload, d.payload_type),
    "one less": lambda d: Draft({"id": "e1"}, d.payload, d.payload_type),
    "cut off": lambda d: Draft(d.attributes, d.payload[:-1], d.payload_type),
    "longer": lambda d: Draft(d.attributes, d.payload + b"x", d.payload_type),
    "nothing": lambda d: Draft(d.attributes, b"", d.payload_type),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_envelope_belongs_to_its_event(file: Path, lie: str) -> None:
    altered = LIES[lie](sent(file, Draft(ATTRIBUTES, SECRET)))
    found = came(file, altered)
    assert (seal_of(found), found.payload_type) == ("false", SEALED)
    assert found.payload == altered.payload
    assert said_of(found).startswith("is false")


def test_no_byte_of_an_envelope_can_be_altered(file: Path) -> None:
    seen = sent(file, Draft(ATTRIBUTES, SECRET))
    seals = Seals(file)
    for place in range(len(seen.payload)):
        altered = bytearray(seen.payload)
        altered[place] ^= 1
        found = seals.open(ATTRIBUTES, bytes(altered), SEALED)
        assert found.seal == ("no-key" if 1 <= place < 9 else "false"), place


def test_the_order_of_attributes_is_nobodys_matter(file: Path) -> None:
    seen = sent(file, Draft(ATTRIBUTES, SECRET))
    turned = dict(reversed(ATTRIBUTES.items()))
    assert seal_of(came(file, Draft(turned, seen.payload, SEALED))) == "opened"


def test_what_a_host_strips_of_its_seal_is_seen_to_have_none(file: Path) -> None:
    """Also of an event without a payload, which is sealed as well."""
    empty = sent(file, Draft(ATTRIBUTES))
    assert len(empty.payload) > HEAD
    found = came(file, empty)
    assert (found.payload, found.payload_type, seal_of(found)) == (b"", "", "opened")
    stripped = came(file, Draft(ATTRIBUTES, b"another", "text/plain"))
    assert (stripped.payload, seal_of(stripped)) == (b"another", "none")


def test_rows_and_gathered_events_and_groups_are_opened(file: Path) -> None:
    draft = Draft(ATTRIBUTES, SECRET, "text/plain")
    session = ControlSession("here", sealer=open_seals(file))
    for command in (AppendEvents(0, "s", (draft,)), PrepareEvents(0, "s", "t", "p", (draft,))):
        (found,) = FrameReader(COMMAND_FRAMES).feed(session.encode(command, session.number()))
        assert isinstance(found, AppendEvents | PrepareEvents)
        row = found.events[0]
        assert SECRET not in row.payload
        content = (row.attributes, row.payload, row.payload_type)
        taken = EventsTaken(1, (StreamEvent(0, 1, 2.0, *content),), ())
        session.receive(REPLY_FRAMES.encode(msgspec.structs.replace(taken, request=1)))
        rows = RowsTaken(2, (GroupRow(0, 1, 2, 3, 4.0, 5.0, *content),))
        session.receive(REPLY_FRAMES.encode(rows))
    replies: Any = [session.answer(1, 0), session.answer(2, 0)]
    session.receive(REPLY_FRAMES.encode(Gathered(0, (event(row),))))
    (gathered,) = session.take()
    assert isinstance(gathered, OpaqueEvent)
    for one in (replies[0].events[0], replies[1].rows[0], gathered):
        assert (one.payload, one.payload_type, seal_of(one)) == (SECRET, "text/plain", "opened")
        assert one.attributes == ATTRIBUTES


def test_every_command_with_payloads_is_sealed(file: Path) -> None:
    """Also one that only asks who would get an event."""
    carrying = [
        kind
        for kind in Command.__subclasses__()
        if any("Draft" in str(field.type) for field in msgspec.structs.fields(kind))
    ]
    assert set(carrying) == set(SEALING)
    session = ControlSession("here", sealer=open_seals(file))
    frame = session.encode(DryRun(0, (Draft(ATTRIBUTES, SECRET),)), 1)
    assert SECRET not in frame


def test_keys_are_rotated_and_old_ones_go_on_opening(file: Path) -> None:
    reader, writer = Seals(file), Seals(file)

    def sealed() -> tuple[bytes, str]:
        writer._look_at = reader._look_at = 0.0  # a second has gone
        return writer.seal(ATTRIBUTES, SECRET, "")

    def seal(of: tuple[bytes, str], by: Seals = reader) -> str:
        return by.open(ATTRIBUTES, *of).seal

    first = sealed()
    old = read_seals(file).seals
    new = add_key(file).keys[-1].id
    assert seals.key_named(sealed()[0]) == old, "the new key only opens"
    ahead = Seals(file)
    assert seal_with_newest(file).seals == new
    later = sealed()
    assert seals.key_named(later[0]) == new
    assert [seal(one, ahead) for one in (first, later)] == ["opened", "opened"]
    assert [seal(one) for one in (first, later)] == ["opened", "opened"]
    forget_key(file, old)
    assert [seal(one, Seals(file)) for one in (first, later)] == ["no-key", "opened"]
    with pytest.raises(SealFileError, match="is the key that seals"):
        forget_key(file, new)
    os.chmod(file, 0o644)
    assert seal(sealed()) == "opened", "a running program goes on with the keys that it has"
    with pytest.raises(DeniedError, match="chmod 600"):
        open_seals(file)


def test_no_number_is_used_twice(file: Path) -> None:
    """By threads, by other programs, and by a process that was forked."""
    seals = Seals(file)
    heads: list[bytes] = []

    def work() -> None:
        heads.extend([seals.seal({}, b"", "")[0][:HEAD] for _ in range(500)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    there, here = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(here, seals.seal({}, b"", "")[0][:HEAD])
        os._exit(0)
    os.waitpid(child, 0)
    heads.append(os.read(there, HEAD))
    for end in (there, here):
        os.close(end)
    work()
    heads.append(Seals(file).seal({}, b"", "")[0][:HEAD])
    assert len(dict.fromkeys(heads)) == len(heads) == 2_502
    assert {len(head) for head in heads} == {HEAD}


@contextmanager
def refused(error: type[ControlError], match: str, canary: str) -> Iterator[None]:
    with pytest.raises(error, match=match) as found:
        yield
    assert canary not in repr(found.getrepr(style="long", showlocals=False))


def test_a_file_that_others_can_read_or_that_is_none_is_refused(file: Path, tmp_path: Path) -> None:
    key = read_seals(file).keys[0].key
    for mode in (0o640, 0o604, 0o660):
        os.chmod(file, mode)
        with refused(DeniedError, "chmod 600", key):
            open_seals(file)
    os.chmod(file, 0o600)
    with pytest.raises(SealFileError, match="exists"):
        found_seals(file)
    text = file.read_text()
    for wrong in (text[:-9], text.replace("keys", "kees"), text.replace(key, key[4:]), "{}", "\0"):
        file.write_text(wrong)
        with refused(ControlError, "is no seal file", key):
            open_seals(file)
    with refused(ControlError, "keys seal new", key):
        open_seals(tmp_path / "absent")
    with refused(ControlError, "no seal file", key):
        open_seals(tmp_path)


def test_no_key_is_in_what_a_program_shows(file: Path) -> None:
    seals, known = Seals(file), read_seals(file)
    key = known.keys[0].key
    shown = repr((seals, known, known.keys[0], seals.seal(ATTRIBUTES, b"x", ""), seals.__dict__))
    assert key not in repr((seals, known))
    assert known.keys[0].id in shown
    for value in (object(), 2**70, "\ud800"):
        session = ControlSession("here", sealer=seals)
        with pytest.raises(EventRefusedError, match="attribute '") as found:
            session.encode(Publish(0, (Draft({"x": value}, SECRET),)), 1)  # type: ignore[dict-item]
        assert key not in str(found.value)
