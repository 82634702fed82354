"""`manage.py check_traces FILE`: sends each trace of a file and checks what is stored and shown.

One line of the file: `{id, event, expect}`. Events are sent as one batch and, into other projects,
one by one; both must end the same. Everything goes through the doors that users have: the REST API,
the trace page, the exports. All of it is rolled back at the end.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from orchestrator.web.trace_check import Checker, expand


class Command(BaseCommand):
    help = "Sends the traces of a file through ingest, pages, search and exports, and checks them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--only", default="", help="id of one trace")

    def handle(self, *args: Any, **options: Any) -> None:
        failed = checked = 0
        for line in options["file"].read_text().splitlines():
            if not line.strip():
                continue
            case = json.loads(line)
            if options["only"] not in ("", case["id"]):
                continue
            checked += 1
            faults = []
            for one_by_one in (False, True):
                with transaction.atomic():
                    faults += Checker(expand(case["event"])).faults(case["expect"], one_by_one)
                    transaction.set_rollback(True)
            failed += bool(faults)
            self.stdout.write(f"{'FAILED' if faults else 'ok':6}  {case['id']}")
            for fault in dict.fromkeys(faults):
                self.stdout.write(f"        {fault}")
        self.stdout.write(f"{checked - failed} of {checked} traces are as expected.")
        if failed:
            raise CommandError(f"{failed} traces are not as expected")
