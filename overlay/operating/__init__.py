"""What a person who runs a node asks of it: `canopy reload`, `canopy doctor`.

``commands`` is the vocabulary of programs, beside `overlay.client`; ``messages`` what nodes say to
one another for it; ``clock_offsets`` the machine that compares wall clocks; ``constants`` the
numbers of this folder. What concerns the process alone (configuration, files, ports) is in
canopy/wire/process.
"""
