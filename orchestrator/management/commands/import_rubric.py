"""Makes a version of a rubric from a file of ours, of OpenEnv or of Harbor's Reward Kit.

    manage.py import_rubric rubric.json --project 3 --name "Answers"
    manage.py import_rubric tests/ --project 3 --name "Code" --accept-losses
    manage.py import_rubric my_env.server.rubrics:rubric --project 3 --name "Game"

What cannot be carried over is listed first, and stops the import unless it is accepted.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from orchestrator.grading.importing import Format, read_source, store
from orchestrator.projects.models import Project, User
from rubrics.errors import RubricInvalid


class Command(BaseCommand):
    help = "Make a rubric from a file of ours, of OpenEnv (also live) or of Harbor's Reward Kit."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("source", help="file, folder of judge files, or module:attribute")
        parser.add_argument("--project", type=int, required=True, help="id of the project")
        parser.add_argument(
            "--name", required=True, help="of the rubric; one that exists: a version"
        )
        parser.add_argument(
            "--format", choices=list(Format), help="of the file; found out where it is absent"
        )
        parser.add_argument(
            "--python", default=sys.executable, help="interpreter that has a live rubric's packages"
        )
        parser.add_argument(
            "--accept-losses", action="store_true", help="import although something is lost"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        project = Project.objects.filter(pk=options["project"]).first()
        if project is None:
            known = ", ".join(f"{p.pk} ({p.name})" for p in Project.objects.order_by("pk")[:20])
            raise CommandError(f"There is no project {options['project']}; there are: {known}")
        form = Format(options["format"]) if options["format"] else None
        try:
            imported = read_source(options["source"], form, python=options["python"])
        except RubricInvalid as invalid:
            raise CommandError("\n".join(invalid.problems)) from invalid
        for note in imported.notes:
            self.stdout.write(f"Note: {note}")
        for loss in imported.losses:
            self.stdout.write(f"Not carried over: {loss}")
        if imported.losses and not options["accept_losses"]:
            raise CommandError(
                f"{len(imported.losses)} things would not be carried over; nothing is stored. "
                "Repeat with --accept-losses if the rubric is right without them."
            )
        version = store(
            actor=_operator(), project=project, name=options["name"][:120], spec=imported.spec
        )
        self.stdout.write(
            f"{version}: {len(imported.spec.criteria)} criteria, {version.sha256[:12]}"
        )


def _operator() -> User:
    operator = User.objects.filter(is_superuser=True, is_active=True).order_by("pk").first()
    if operator is None:
        raise CommandError("There is no operator yet: manage.py createsuperuser")
    return operator
