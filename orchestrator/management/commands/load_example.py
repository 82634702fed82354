"""`manage.py load_example NAME`: an example, or any folder of that form, into a project.

    manage.py load_example                                  the examples
    manage.py load_example database-mutations               load it
    manage.py load_example ./my-environment --project 3     load a folder of yours
    manage.py load_example questions --run --tasks 10       load it and start a baseline run

Loading twice changes nothing; loading a folder that has changed makes a new version. A run is for
the workers: without `manage.py up` it waits.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.urls import reverse
from rich.console import Console

from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.environments import folders
from orchestrator.environments.models import EnvironmentVersion, Split, Task
from orchestrator.management.commands.demo import prepare_database, prepare_model
from orchestrator.projects.models import Project, User
from orchestrator.projects.services import create_first_admin, create_project
from orchestrator.runs.models import Purpose, Run
from orchestrator.runs.services import PlannedRollout, RunSpec, create_run, start_run

PROJECT = "Examples"
BUNDLED = "SmolLM2-135M-Instruct"
SPLITS = (Split.SELECT, Split.TEST, Split.TRAIN)
"""Where a baseline looks first: the sealed test split is for claims."""
SEED = 7


class Command(BaseCommand):
    help = "Load an example, or a folder of the same form; list the examples without a name."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", nargs="?", help="of an example, or path of a folder")
        parser.add_argument("--project", type=int, help=f"number of a project; {PROJECT}")
        parser.add_argument("--run", action="store_true", help="start a baseline run")
        parser.add_argument("--model", help="name of a model of the project; the bundled one")
        parser.add_argument("--split", choices=Split.values, help="tasks of the run")
        parser.add_argument("--tasks", type=int, help="how many tasks the run has at most")

    def handle(self, *args: Any, **options: Any) -> None:
        console = Console(highlight=False, soft_wrap=True)
        if options["name"] is None:
            self._list()
            return
        try:
            environment = folders.read_folder(folder_of(options["name"]))
        except folders.FolderInvalid as exc:
            raise CommandError(str(exc)) from exc
        prepare_database(console)
        admin = create_first_admin()
        if admin.password:
            console.print(f"  sign in as admin with password {admin.password}  (shown once)")
        project = project_of(admin.user, options["project"])
        try:
            stored = folders.store(actor=admin.user, project=project, environment=environment)
        except folders.FolderInvalid as exc:
            raise CommandError(str(exc)) from exc
        version = stored.version
        base = f"http://127.0.0.1:{settings.PORT}"
        page = reverse("web:environment", args=[project.pk, version.environment.slug])
        self.stdout.write(
            f"{environment.name}: version {version.number}, {len(environment.tasks)} tasks, "
            f"in project {project.pk} ({project.name})\n  {base}{page}"
        )
        if options["run"]:
            model = model_of(project, options["model"])
            if model.kind == EndpointKind.LOCAL and not model.base_url:
                prepare_model(console)
            run = start_baseline(
                project, stored, model, split=options["split"], n_tasks=options["tasks"]
            )
            page = reverse("web:run", args=[project.pk, run.pk])
            self.stdout.write(f"run {run.pk} with {model.name}\n  {base}{page}")

    def _list(self) -> None:
        for folder in sorted(examples().iterdir()):
            if (folder / folders.CONFIG).is_file():
                try:
                    found = folders.read_folder(folder)
                    said = f"{found.kind}, {len(found.tasks)} tasks: {found.about}"
                except folders.FolderInvalid as exc:
                    said = f"cannot be read: {str(exc).splitlines()[0]}"
                self.stdout.write(f"{folder.name:<22}{said}")


def examples() -> Path:
    return Path(settings.BASE_DIR) / "examples"


def folder_of(name: str) -> Path:
    """A name is an example's; anything with a slash, or a folder that exists, is a path."""
    example = examples() / name
    if "/" not in name and (example / folders.CONFIG).is_file():
        return example
    path = Path(name).expanduser()
    if not path.is_dir():
        known = ", ".join(sorted(p.parent.name for p in examples().glob(f"*/{folders.CONFIG}")))
        raise CommandError(f"{name}: neither an example ({known}) nor a folder")
    return path


def project_of(actor: User, number: int | None) -> Project:
    if number is not None:
        project = Project.objects.filter(pk=number).first()
        if project is None:
            raise CommandError(f"There is no project {number}; --project takes a project's number.")
        return project
    project = Project.objects.filter(name=PROJECT).order_by("pk").first()
    return project or create_project(actor=actor, name=PROJECT)


def model_of(project: Project, name: str | None) -> ModelEndpoint:
    """The named one of the project; the bundled one is made where it is missing."""
    if name is None:
        endpoint, _ = ModelEndpoint.objects.get_or_create(
            project=project,
            name=BUNDLED,
            defaults={"kind": EndpointKind.LOCAL, "model": settings.MODEL_NAME},
        )
        return endpoint
    found = ModelEndpoint.objects.filter(project=project, name=name).first()
    if found is None:
        known = ModelEndpoint.objects.filter(project=project).values_list("name", flat=True)
        raise CommandError(
            f"Project {project.pk} has no model {name!r}; known: {', '.join(known) or 'none'}. "
            "Add it in the project's settings."
        )
    return found


def start_baseline(
    project: Project,
    stored: folders.Stored,
    model: ModelEndpoint,
    *,
    split: str | None,
    n_tasks: int | None,
) -> Run:
    """Queues the run. CommandError where the folder has no rubric or harness, or no such tasks."""
    if stored.rubric is None or stored.harness is None:
        raise CommandError("A run needs rubric.json and harness/ in the folder.")
    tasks = tasks_of(stored.version, split)[:n_tasks]
    if not tasks:
        raise CommandError(f"There are no tasks in split {split}.")
    run = create_run(
        plan=[PlannedRollout(stored.harness.pk, task) for task in tasks],
        spec=RunSpec(
            project=project,
            purpose=Purpose.BASELINE,
            label=f"{stored.version.environment.name}: baseline",
            environment_version=stored.version,
            rubric_version=stored.rubric,
            model=model,
            seed=SEED,
        ),
    )
    return start_run(run=run)


def tasks_of(version: EnvironmentVersion, split: str | None) -> list[Task]:
    """Those of the split; without one, of the first of `SPLITS` that has any."""
    for name in (split,) if split else SPLITS:
        found = list(Task.objects.filter(version=version, split=name).order_by("key"))
        if found:
            return found
    return []
