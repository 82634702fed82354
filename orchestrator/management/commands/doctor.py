"""`manage.py doctor`: what this machine can give, and what is wrong with the installation."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from orchestrator.environments.diagnosis import Finding, Level, findings
from orchestrator.operating.findings import installation_findings

MARKS: dict[Level, str] = {"ok": "ok  ", "note": "note", "warn": "WARN", "fail": "FAIL"}


class Command(BaseCommand):
    help = (
        "Say what isolation this machine can give and what is wrong with the installation. "
        "Exit code 1: something needed is missing."
    )
    # It has to work on a machine where nothing else does yet.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="one JSON object")
        parser.add_argument(
            "--machine", action="store_true", help="only the machine: isolation, disks, clock"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        found = findings(Path(settings.DATA_DIR))
        if not options["machine"]:
            found += installation_findings()
        is_fit = all(finding.level != "fail" for finding in found)
        if options["json"]:
            record = {"ok": is_fit, "findings": [asdict(finding) for finding in found]}
            self.stdout.write(json.dumps(record, indent=2))
        else:
            for finding in found:
                self.stdout.write(line(finding))
        if not is_fit:
            raise SystemExit(1)


def line(finding: Finding) -> str:
    fix = f"  → {finding.fix}" if finding.fix else ""
    return f"{MARKS[finding.level]}  {finding.name}: {finding.text}{fix}"
