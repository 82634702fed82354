from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from orchestrator.keeping.archive.services import version
from orchestrator.keeping.archive.writing import write_archive
from orchestrator.projects.models import Project


class Command(BaseCommand):
    help = "Write a project into one file, beside running work. Keys of endpoints stay here."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("project", type=int, help="its id, as in the addresses of its pages")
        parser.add_argument("file", type=Path, help="to write; it must not exist")
        parser.add_argument(
            "--checkpoints", action="store_true", help="with the adapters of trainings"
        )

    def handle(self, **options: Any) -> None:
        project = Project.objects.filter(pk=options["project"]).first()
        if project is None:
            raise CommandError(f"there is no project {options['project']}")
        path: Path = options["file"]
        try:
            manifest = write_archive(
                project=project,
                path=path,
                version=version(),
                with_checkpoints=options["checkpoints"],
            )
        except FileExistsError as error:
            raise CommandError(f"{path} exists; name another file") from error
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        rows = sum(manifest.rows.values())
        self.stdout.write(f"{path}: {rows:,} rows, {path.stat().st_size:,} bytes")
        for name in manifest.endpoints_without_key:
            self.stdout.write(f"without the key of the endpoint {name!r}")
