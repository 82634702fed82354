"""What a project keeps, and how it moves.

`archive` writes a whole project into one file and makes a project of such a file; `retention` takes
away what rules say may go, and says before what that would be; `use` measures the bytes that a
project has. All of it stands above the apps whose rows it handles, and knows their tables.
"""

from __future__ import annotations
