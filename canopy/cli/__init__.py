"""The `canopy` command: one file per command, thin, over what the other folders do.

`main` finds the command and turns whatever goes wrong into one clear message and an exit code;
`connect` and `output` are what the commands share; `feeds/` reads users' events; `demo/` is the
living overlay on loopback. The arrows allow cli to import everything; each command imports what it
needs when it runs, so that `canopy --help` is quick and a node loads neither Spark nor Textual.
"""
