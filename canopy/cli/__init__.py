"""The `canopy` command.

``main`` has the table of commands and turns every exception into a message and an exit code
(``errors``); ``hints`` suggests the command that a wrong name may have meant. ``subscribe/`` and
``publish/`` carry events, ``streams/`` keeps them and ``sync/`` has databases follow them;
``process/`` starts, ends and configures a node, ``keys/`` says who may take part, and ``doctor/``
looks for what is wrong; ``inspection/`` has the commands that ask a node what it knows (status,
top, peers, ring, where, subs, why); ``traces/`` reads trace files; ``demo/`` and ``sim/``, and the
modules ``bench``, ``contexts``, ``gateway``, ``sample``, ``shells`` (completion scripts) and
``tui`` are one command each.

What they share: ``connect`` (options, and the connection to a node), ``completion`` (of words in
the shell), ``parameters`` (numbers, and the option `--set`), ``arguments`` (takes secrets out of
those that `ps` shows), ``output`` (JSON and tables), ``display`` (progress and steps), ``extras``
(what to install for a command), ``constants`` (every fixed number). Commands import what they need
when they run, so that ``canopy --help`` and each short command start fast.
"""
