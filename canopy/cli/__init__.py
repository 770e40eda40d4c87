"""The `canopy` command.

``main`` has the table of commands and turns every exception into a message and an exit code
(``errors``); ``hints`` suggests the command that a wrong name may have meant. Each command is a
file: ``node``, ``stop`` and ``tui`` start or end something, ``sub`` and ``publish/`` carry events,
``sample`` makes some up, ``traces/`` and ``config`` read files. ``inspection/`` has the commands
that ask a node what it knows (status, top, peers, ring, where, subs, why); ``demo/`` and ``sim/``,
and the modules ``bench``, ``contexts``, ``gateway`` and ``shells`` (completion scripts) are one
command each. ``difference`` is `canopy sub --diff`.

What they share: ``connect`` (options, and the connection to a node), ``context_store`` (writes
named contexts), ``completion`` (of words in the shell), ``parameters`` (numbers, and the
option `--set`), ``arguments`` (takes secrets out of those that `ps` shows),
``output`` (JSON and tables), ``delivery`` (printed deliveries), ``display`` (progress and steps),
``extras`` (what to install for a command), ``constants`` (every fixed number). Commands import what
they need when they run, so that ``canopy --help`` and each short command start fast.
"""
