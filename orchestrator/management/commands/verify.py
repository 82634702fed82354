"""`manage.py verify`: whether rows and event log keep what Switchback promises."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from orchestrator.invariants.verification import INVARIANTS, verify


class Command(BaseCommand):
    help = "Looks whether rows and event log fit one another; changes nothing, safe beside work."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
        parser.add_argument(
            "--at-rest", action="store_true", help="all work has ended: no job may be left"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        report = verify(at_rest=options["at_rest"])
        if options["json"]:
            findings = [asdict(finding) for finding in report.findings]
            told = {"findings": findings, "looked_at": report.looked_at}
            self.stdout.write(json.dumps(told))
        else:
            for finding in report.findings:
                self.stdout.write(f"{finding}\n    must hold: {INVARIANTS[finding.invariant]}")
            sizes = ", ".join(f"{n:,} {name}" for name, n in report.looked_at.items())
            self.stdout.write(f"Looked at {sizes}.")
        if not report.is_sound:
            n = len(report.findings)
            more = ", or more" if report.is_cut_off else ""
            raise CommandError(
                f"{n} things do not hold{more}." if n > 1 else "1 thing does not hold."
            )
        if not options["json"]:
            self.stdout.write("All holds.")
