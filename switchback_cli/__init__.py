"""`switchback`: the command line of a Switchback server, for terminals and CI jobs.

It speaks the REST API and nothing else: no Django, no database, three libraries (httpx, typer,
rich). It waits through a restart of the server, and its exit code is the verdict.
"""

from __future__ import annotations
