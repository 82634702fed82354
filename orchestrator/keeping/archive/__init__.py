"""A project as one zip file: `writing` makes it, `reading` makes a project of it.

Each table is one member of JSON lines, one row a line, in the order of `tables.TABLES`. Rows name
each other by their place in their table, counted from 1, never by the keys of an installation; so
what is exported, imported and exported again has the same bytes. `manifest.json` has the number of
rows and the SHA-256 of every member. Secrets stay at home: endpoints come without keys, and the
manifest says so.
"""

from __future__ import annotations
