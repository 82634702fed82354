"""Sources that are brought along: packages and folders, images, Azure disks.

`manifest` reads `openenv.yaml`; `layout` finds the app of a folder; `snapshot` freezes a folder by
its content; `requirements` says what must be installed; `install` makes the virtual environment
that a source has for itself; `serve` is the program that serves it, inside the sandbox; `services`
and `registering` turn a source into an environment, by a job; `queries` read how far that is.
"""
