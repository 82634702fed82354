"""Takes a folder in the layout of the OpenEnv repository into a project, as it is.

The operator's way: no page, and no worker needed. It queues the same job as registering in the
browser, works on it here unless a worker is quicker, and prints the steps.
"""

from __future__ import annotations

import json
import threading
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from orchestrator.environments.errors import SourceError
from orchestrator.environments.models import (
    EnvironmentKind,
    RegistrationState,
    SourceRegistration,
)
from orchestrator.environments.packages.manifest import read_manifest
from orchestrator.environments.packages.services import register_source
from orchestrator.events.queries import events_after
from orchestrator.jobs.execution import run_attempt
from orchestrator.projects.models import Project, User

_POLL_S = 0.25


class Command(BaseCommand):
    help = "Register a folder in OpenEnv's layout (openenv.yaml, server/app.py) as an environment."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("path", type=Path, help="the folder")
        parser.add_argument("--project", type=int, required=True, help="id of the project")
        parser.add_argument("--name", help="of the environment; else what its manifest says")
        parser.add_argument("--app", default="", help="module:attribute; else the manifest's")
        parser.add_argument(
            "--env", action="append", default=[], metavar="NAME=VALUE", help="variable, repeatable"
        )
        parser.add_argument("--data", default="", help="folder that servers get a copy of")
        parser.add_argument(
            "--require", action="append", default=[], help="further requirement, repeatable"
        )
        parser.add_argument(
            "--wheel",
            action="append",
            default=[],
            help="what its reset installs with pip, repeatable",
        )
        parser.add_argument("--reset", default="{}", help="JSON parameters of the proving reset")
        parser.add_argument("--resources", default="{}", help="JSON: memory_mb, network, slots, …")

    def handle(self, *args: Any, **options: Any) -> None:
        folder = options["path"].expanduser().resolve()
        project = Project.objects.filter(pk=options["project"]).first()
        if project is None:
            known = ", ".join(f"{p.pk} ({p.name})" for p in Project.objects.order_by("pk")[:20])
            raise CommandError(f"There is no project {options['project']}; there are: {known}")
        source: dict[str, Any] = {"path": str(folder), "app": options["app"]}
        try:
            source["env"] = dict(_pair(text) for text in options["env"])
            source["reset"] = _object(options["reset"], "--reset")
            resources = _object(options["resources"], "--resources")
            if options["data"]:
                source["data"] = str(Path(options["data"]).expanduser().resolve())
            source["requirements"] = options["require"]
            source["wheels"] = options["wheel"]
            manifest = read_manifest(folder)
            registration = register_source(
                actor=_operator(),
                project=project,
                name=options["name"] or (manifest.name if manifest else "") or folder.name,
                kind=EnvironmentKind.PACKAGE,
                source=source,
                resources=resources,
            )
        except SourceError as exc:
            raise CommandError(str(exc)) from exc
        self._follow(registration)
        version = registration.version
        if registration.state != RegistrationState.DONE or version is None:
            raise CommandError(registration.message)
        for note in version.source.get("notes", ()):
            self.stdout.write(note)
        self.stdout.write(f"{version} of project {project.name} ({project.pk})")

    def _follow(self, registration: SourceRegistration) -> None:
        """Works on the job, and prints its steps until it has ended, whoever ends it."""
        if registration.job_id is None:
            raise CommandError("the registration has no job")
        # A daemon: Ctrl-C must end the command; what is half done is started anew by a worker.
        work = threading.Thread(target=run_attempt, args=(registration.job_id,), daemon=True)
        work.start()
        seen = 0
        while True:
            work.join(_POLL_S)
            registration.refresh_from_db()
            has_ended = registration.has_ended
            for event in events_after(registration.stream_id, seen):
                seen = event.seq
                if event.kind == "registration.step":
                    self.stdout.write(f"  {event.payload['text']}")
            if has_ended:
                work.join()
                return
            if not work.is_alive():
                # A worker has the job.
                threading.Event().wait(_POLL_S)


def _operator() -> User:
    operator = User.objects.filter(is_superuser=True, is_active=True).order_by("pk").first()
    if operator is None:
        raise CommandError("There is no operator yet: manage.py createsuperuser")
    return operator


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise SourceError(f"--env: {text!r:.60} is not NAME=VALUE")
    return name, value


def _object(text: str, option: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as exc:
        raise SourceError(f"{option}: not JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise SourceError(f"{option}: a JSON object was expected")
    return value
