"""Who changed what: every change that a person or their token makes, with before and after.

A request that may change something opens a `Record` (`middleware`). `projects.access.require`
writes the project into it, for that is where the right to change is granted. Models that are saved
or deleted meanwhile add their differences (`signals`); services that change rows by one UPDATE say
so with `changed`. What was answered with success, or refused for want of a role, becomes one
`AuditEntry`, written before the answer leaves. What Switchback does by itself is in the event log.
"""

from __future__ import annotations

from orchestrator.projects.audit.record import Record, acting, changed, current

__all__ = ["Record", "acting", "changed", "current"]
