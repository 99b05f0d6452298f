"""A server that imports torch and transformers once, then forks one child per stage command.

A stage that needs them spends 3 to 9 seconds on imports, several times an iteration; a fork takes
milliseconds. With `RLA_PREFORK=<socket>` in the environment, `rla <command>` sends its arguments, working
directory, environment and standard streams to the server and exits with the child's status. Where anything is
wrong with the server (absent, dying, another version of the code) the command simply runs by itself.

`protocol` says what goes over the socket, `client` and `server` are its two ends, `control` starts and stops.
"""
