"""What stands above a cluster in tests of the cluster alone: a registry that keeps a list of
entries as the trees keep theirs."""

from __future__ import annotations

from overlay.chord.clusters import Clusters
from overlay.chord.events import (
    ArcArrived,
    ArcGone,
    ArcKept,
    ArcLeaving,
    ArcMerging,
    Committed,
    DiskSnapshotWanted,
    EntryObserved,
    EntryReceived,
    FollowerSnapshotWanted,
    LogReset,
    MemberLeaving,
    MergePhaseWanted,
    ObservedArc,
    ObservedEnded,
    ObservedReset,
    RoleChanged,
)
from overlay.chord.keys import in_arc
from overlay.chord.messages import Cluster, MergePhase
from overlay.machine import Handlers, Key, LocalEvent, Machine, Peer, Port

EVENTS = (
    *(RoleChanged, LogReset, EntryReceived, FollowerSnapshotWanted, DiskSnapshotWanted, Committed),
    *(ArcLeaving, ArcKept, ArcGone, ObservedReset, EntryObserved, ObservedArc, ObservedEnded),
    *(MemberLeaving, MergePhaseWanted, ArcMerging, ArcArrived),
)


class FakeRegistry(Machine):
    """What the trees do at the cluster: entries are `key:text`, each belongs to the key's arc."""

    def __init__(self, port: Port, clusters: Clusters) -> None:
        super().__init__(port)
        self.clusters = clusters
        self.entries: list[bytes] = []  # at primary, standby, coming primary
        self.committed = 0
        self.written: list[tuple[int, bytes]] = []  # appended here, not yet committed
        self.durable: list[bytes] = []  # committed while we were primary
        self.key: Key = ""
        self.slow = False  # answers ArcLeaving only in go_on
        self.departing: Cluster | None = None
        self.merging = False  # ArcMerging has come, and is not answered yet
        self.hosts_for_long = False  # answers MemberLeaving only in release_waiting
        self.leaving: list[Peer] = []
        self.unites = True  # answers Uniting at once
        self.stages: list[int] = []  # that it was asked for
        self.observed: dict[Key, list[bytes]] = {}  # copies of other clusters' logs

    def handlers(self) -> Handlers:
        return dict.fromkeys(EVENTS, self.on_event)

    def write(self, key: Key, text: str) -> bool:
        """As the registry does: only where the node owns the key."""
        if not self.clusters.owns(key):
            return False
        entry = f"{key}:{text}".encode()
        index = self.clusters.append(entry)
        self.entries.append(entry)
        self.written.append((index, entry))
        return True

    def on_event(self, event: LocalEvent) -> None:
        clusters = self.clusters
        if isinstance(event, RoleChanged):
            if event.role == "none":
                self.entries.clear()
            if event.role != "primary":
                self.written.clear()
        elif isinstance(event, LogReset):
            self.entries.clear()
        elif isinstance(event, EntryReceived):
            if not event.entry.startswith(b"soft"):
                self.entries.append(event.entry)
        elif isinstance(event, FollowerSnapshotWanted):
            clusters.send_snapshot(list(self.entries))
        elif isinstance(event, DiskSnapshotWanted):
            clusters.store_snapshot(list(self.entries))
        elif isinstance(event, Committed):
            self.durable += [entry for index, entry in self.written if index < event.next]
            self.written = [(i, entry) for i, entry in self.written if i >= event.next]
        elif isinstance(event, ArcLeaving):
            self.departing = event.arc
            if not self.slow:
                self.go_on()
        elif isinstance(event, ArcMerging):
            self.merging = True
            if not self.slow or event.decided:
                self.stop_all()
        elif isinstance(event, ArcArrived):
            for entry in event.entries:
                self.written.append((clusters.append(entry), entry))
                self.entries.append(entry)
            clusters.arc_stored()
        elif isinstance(event, ArcKept):
            self.departing, self.merging = None, False
        elif isinstance(event, ArcGone):
            self.entries = [e for e in self.entries if not event.arc.owns(e[:40].decode())]
        elif isinstance(event, ObservedReset):
            self.observed[event.key] = []
        elif isinstance(event, EntryObserved):
            self.observed[event.key].append(event.entry)
        elif isinstance(event, ObservedArc):
            entries, arc = self.observed[event.key], (event.start, event.key)
            self.observed[event.key] = [e for e in entries if in_arc(e[:40].decode(), *arc)]
        elif isinstance(event, ObservedEnded):
            self.observed.pop(event.key, None)
        elif isinstance(event, MemberLeaving):
            self.leaving.append(event.peer)
            if not self.hosts_for_long:
                self.release_waiting()
        elif isinstance(event, MergePhaseWanted):
            self.stages.append(event.phase)
            if self.unites and event.phase:
                clusters.merge_phase_reached(MergePhase(event.phase))

    def go_on(self) -> None:
        """Hand over the entries of the arc that leaves."""
        arc, own = self.departing, self.clusters.cluster
        assert arc is not None
        assert own is not None
        self.departing = None
        if arc.key == own.key:
            self.clusters.transfer([b"soft state"])
        else:
            self.clusters.transfer([e for e in self.entries if arc.owns(e[:40].decode())])

    def stop_all(self) -> None:
        """Nothing is served any more: hand all entries to the next cluster."""
        self.merging = False
        self.clusters.hand_to_successor(list(self.entries))

    def release_waiting(self) -> None:
        for peer in self.leaving:
            self.clusters.release(peer)
        self.leaving.clear()
