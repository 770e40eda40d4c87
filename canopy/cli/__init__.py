"""The `canopy` command.

``main`` has the table of commands and turns every exception into a message and an exit code
(``errors``). Each command is a file: ``node``, ``stop`` and ``tui`` start or end something,
``sub``, ``subs``, ``pub`` and ``why`` concern events, ``show`` has status, peers, ring and where,
``top`` the whole overlay,
``trace`` and ``config`` read files; ``bench/``, ``contexts/``, ``demo/`` and ``sim/`` are folders.

What they share: ``connect`` (options, and the connection to a node), ``completion`` (of words in
the shell), ``output`` (JSON and tables), ``delivery/`` (printed deliveries), ``bars`` (progress),
``watching`` (looks at intervals), ``feeds/`` (users' files as events), ``extras`` (what to install
for a command), ``constants`` (every fixed number). Commands import what they need when they run, so
that ``canopy --help`` and each short command start fast.
"""
