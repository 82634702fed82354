"""Proposals that wait for a person or an agent: list them, take one out, hand the answer in.

manage.py proposals list
manage.py proposals export 12 --to question.json
manage.py proposals answer 12 answer.json --user ada
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.exceptions import PermissionDenied
from django.core.management.base import BaseCommand, CommandError
from django.http import Http404

from optimizer.models import Proposal
from orchestrator.projects.models import User
from orchestrator.proposing.errors import AnswerRefused
from orchestrator.proposing.handing import answer, handed_out
from orchestrator.proposing.names import HANDED_IN


class Command(BaseCommand):
    help = "List proposals that wait for an answer by hand, export one, or answer it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("action", choices=["list", "export", "answer"])
        parser.add_argument("proposal", type=int, nargs="?", help="number of the proposal")
        parser.add_argument("file", type=Path, nargs="?", help="the answer; standard input if -")
        parser.add_argument("--search", type=int, help="list: of this search alone")
        parser.add_argument("--to", type=Path, help="export: a file; standard output where absent")
        parser.add_argument("--user", help="answer: who answers, by user name")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["action"] == "list":
            self._list(options["search"])
            return
        if options["proposal"] is None:
            raise CommandError(f"Name the proposal: manage.py proposals {options['action']} 12")
        proposal = (
            Proposal.objects.filter(pk=options["proposal"])
            .select_related("search__seed_harness", "search__rubric_version")
            .first()
        )
        if proposal is None:
            raise CommandError(f"There is no proposal {options['proposal']}.")
        try:
            if options["action"] == "export":
                self._export(proposal, options["to"])
            else:
                self._answer(proposal, options["file"], options["user"])
        except AnswerRefused as why:
            raise CommandError("\n".join([why.message, *why.findings])) from why

    def _list(self, search: int | None) -> None:
        waiting = Proposal.objects.filter(
            proposer=HANDED_IN, state=Proposal.State.WAITING
        ).select_related("search")
        if search is not None:
            waiting = waiting.filter(search_id=search)
        for proposal in waiting:
            since = f"{proposal.created_at:%Y-%m-%d %H:%M} UTC"
            self.stdout.write(
                f"{proposal.pk}\tsearch {proposal.search_id} ({proposal.search})\t"
                f"round {proposal.round}\tsince {since}"
            )
        if not waiting:
            self.stdout.write("No proposal waits for an answer by hand.")

    def _export(self, proposal: Proposal, to: Path | None) -> None:
        text = json.dumps(handed_out(proposal), ensure_ascii=False, indent=1) + "\n"
        if to is None:
            self.stdout.write(text, ending="")
            return
        to.write_text(text, encoding="utf-8")
        self.stdout.write(str(to))

    def _answer(self, proposal: Proposal, file: Path | None, name: str | None) -> None:
        if file is None or not name:
            raise CommandError("Name the file and who answers: proposals answer 12 FILE --user ADA")
        user = User.objects.filter(username=name, is_active=True).first()
        if user is None:
            raise CommandError(f"There is no user {name!r}.")
        try:
            text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            raise CommandError(f"{file} cannot be read: {exc}") from exc
        try:
            answered = answer(actor=user, proposal=proposal, text=text)
        except (Http404, PermissionDenied) as exc:
            raise CommandError(f"{name} may not edit the project of this search.") from exc
        self.stdout.write(f"{len(answered.edits)} edits will be tried.")
        for item in answered.refused:
            self.stdout.write(f"Refused: {'; '.join(item['findings'])}")
