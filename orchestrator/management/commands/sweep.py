from __future__ import annotations

import signal
import threading
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from orchestrator.management.sweeper import sweep_until
from orchestrator.processes.beating import begin, end
from orchestrator.processes.models import ProcessKind


class Command(BaseCommand):
    help = "Announce jobs whose message or worker was lost (STACK=scale; `up` does it itself)."

    def handle(self, *args: Any, **options: Any) -> None:
        if settings.STACK != "scale":
            raise CommandError("Under STACK=embedded `manage.py up` sweeps; nothing to do here.")
        stop = threading.Event()
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, lambda *_: stop.set())
        begin(ProcessKind.SWEEP)
        sweep_until(stop)
        end(ProcessKind.SWEEP)
