from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from orchestrator.keeping.archive.reading import look_into, read_archive
from orchestrator.keeping.archive.rows import discard
from orchestrator.keeping.errors import ArchiveInvalid
from orchestrator.projects.models import Membership, Project, Role, User


class Command(BaseCommand):
    help = "Make a project of an exported file. Nobody sees it until all of it is there."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--owner", required=True, help="name of the user who becomes its admin")
        parser.add_argument(
            "--name", default="", help="of the new project; as exported if left out"
        )

    def handle(self, **options: Any) -> None:
        owner = User.objects.filter(username=options["owner"], is_active=True).first()
        if owner is None:
            raise CommandError(f"there is no user {options['owner']!r}")
        path: Path = options["file"]
        if not path.is_file():
            raise CommandError(f"{path} is no file")
        try:
            manifest = look_into(path)
            project = Project.objects.create(name=(options["name"] or manifest.project)[:100])
            try:
                read_archive(project=project, path=path)
            except BaseException:
                discard(project)
                raise
        except ArchiveInvalid as error:
            raise CommandError(f"{path}: {error}") from error
        with transaction.atomic():
            Membership.objects.create(project=project, user=owner, role=Role.ADMIN)
        rows = sum(manifest.rows.values())
        self.stdout.write(f"project {project.pk} {project.name!r}: {rows:,} rows")
        for name in manifest.endpoints_without_key:
            self.stdout.write(f"give a key again to the endpoint {name!r}")
