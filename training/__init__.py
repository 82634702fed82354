"""Better weights from traces: rows, credit, losses, backends and jobs.

The pure core (`types`, `rows`, `credit`, `losses`, `schedule`, `filters`) imports neither torch nor
Django, so the web tier may use it. What needs torch (`objective`, `head`, `lora`, `packing`,
`backends`, `jobs.loop`) is imported by the runner's child process alone.
"""

from __future__ import annotations
