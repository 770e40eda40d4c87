"""Local programs: their subscriptions and questions (overlay/client.py). Their publications go to
the publisher.

``clients`` owns subscriptions; ``gap_reports`` tells programs that events may be missing;
``explanations`` answers why an event reached a subscription or not (`canopy why`); ``inspection``
answers what the ring and a tree look like (`canopy ring`, `canopy where`); ``dry_run`` who would
get an event (`canopy pub --dry-run`). ``low_water`` knows since when deliveries to this node may be
incomplete. ``constants`` has every number that is no setting. node.py
dispatches a client's commands to these machines by their `commands` tables, and answers leave
through `Port.reply`."""
