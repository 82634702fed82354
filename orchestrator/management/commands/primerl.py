"""Hands training jobs to prime-rl and takes adapters back.

manage.py primerl export 7 --environment-url http://env-host:8102 --to job.toml
manage.py primerl launch job.toml --job 7
manage.py primerl import outputs/run/weights/step_50 --job 7 --name "grid, 50 steps" --user ada

With `--job` the job's page tells of the launch and of the adapter that came back.
"""

from __future__ import annotations

import shutil
import subprocess
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.exceptions import PermissionDenied
from django.core.management.base import BaseCommand, CommandError
from django.http import Http404

from orchestrator.projects.models import Project, User
from orchestrator.trainings.errors import TrainingRefused
from orchestrator.trainings.handover import handed_over, record
from orchestrator.trainings.imports import import_adapter
from training.backends.primerl import validate
from training.errors import ConfigurationError
from training.models import TrainingJob


class Command(BaseCommand):
    help = "Hand a training job to prime-rl (export, launch), or import an adapter from there."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("action", choices=["export", "launch", "import"])
        parser.add_argument("what", help="number of the job, TOML file, or folder of the adapter")
        parser.add_argument("--to", type=Path, help="export: a file; standard output where absent")
        parser.add_argument("--environment-url", default="", help="export: of the OpenEnv server")
        parser.add_argument("--model", default="", help="export: as prime-rl loads it")
        parser.add_argument("--seq-len", type=int, default=4096, help="export: tokens of a row")
        parser.add_argument("--max-completion-tokens", type=int, default=512, help="export")
        parser.add_argument("--slurm-job", default="", help="export: name of the SLURM job")
        parser.add_argument("--train-nodes", type=int, default=0, help="export: 0 is one machine")
        parser.add_argument("--inference-nodes", type=int, default=0, help="export")
        parser.add_argument("--check-with", help="export: Python that has prime-rl-configs")
        parser.add_argument("--rl", default="rl", help="launch: prime-rl's program")
        parser.add_argument("--dry-run", action="store_true", help="launch: as prime-rl's own")
        parser.add_argument("--job", type=int, help="launch, import: the job that this is of")
        parser.add_argument("--project", type=int, help="import: id; that of the job if given")
        parser.add_argument("--name", default="", help="import: of the model")
        parser.add_argument("--user", default="", help="import: who does it, by user name")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['action']}")(options)
        except (TrainingRefused, ConfigurationError, PermissionDenied, Http404) as why:
            raise CommandError(str(why) or "Not allowed.") from why

    def _export(self, options: dict[str, Any]) -> None:
        job = _job(int(options["what"]) if options["what"].isdecimal() else 0)
        found = handed_over(
            job,
            environment_url=options["environment_url"],
            model=options["model"],
            seq_len=options["seq_len"],
            max_completion_tokens=options["max_completion_tokens"],
            slurm_job=options["slurm_job"],
            train_nodes=options["train_nodes"],
            inference_nodes=options["inference_nodes"],
        )
        python = options["check_with"]
        if python and (objection := validate(found.toml, python=python)):
            raise CommandError(f"prime-rl would refuse this configuration:\n{objection}")
        for note in found.notes:
            self.stderr.write(f"differs: {note}")
        target = options["to"]
        if target is not None:
            target.write_text(found.toml, "utf-8")
        record(
            job,
            "exported",
            file="" if target is None else str(target.absolute()),
            checked=bool(python),
            notes=list(found.notes),
        )
        if target is None:
            self.stdout.write(found.toml)
            return
        checked = f"accepted by {python}" if python else "not checked by prime-rl's own classes"
        self.stdout.write(f"{options['to']}: {checked}")

    def _launch(self, options: dict[str, Any]) -> None:
        """Runs it in the foreground; what it prints goes here and beside the file."""
        file = Path(options["what"])
        job = _job(options["job"]) if options["job"] is not None else None
        if not file.is_file():
            raise CommandError(f"{file} is no file; make one with manage.py primerl export.")
        program = shutil.which(options["rl"])
        if program is None:
            raise CommandError(
                f"There is no program {options['rl']!r} here: install prime-rl on this machine "
                "(it needs NVIDIA GPUs), or name its program with --rl."
            )
        command = [program, "@", str(file), *(["--dry-run"] if options["dry_run"] else [])]
        log = file.with_suffix(".log")
        about = {"file": str(file.absolute()), "log": str(log.absolute())}
        if job is not None:
            record(job, "started", **about)
        with (
            log.open("a", encoding="utf-8") as kept,
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            ) as child,
        ):
            assert child.stdout is not None
            try:
                for line in child.stdout:
                    kept.write(line)
                    kept.flush()
                    self.stdout.write(line, ending="")
            except KeyboardInterrupt:
                child.terminate()
            code = child.wait()
        if job is not None:
            record(job, "failed" if code else "ended", code=code, **about)
        if code != 0:
            raise CommandError(f"prime-rl ended with {code}; its words are in {log}")
        self.stdout.write(f"prime-rl has ended; its words are in {log}")

    def _import(self, options: dict[str, Any]) -> None:
        job = _job(options["job"]) if options["job"] is not None else None
        number = job.project_id if job is not None else options["project"]
        project = Project.objects.filter(pk=number).first()
        if project is None:
            raise CommandError("Name the project: --project 1, or its job: --job 7")
        user = User.objects.filter(username=options["user"]).first()
        if user is None:
            raise CommandError("Name who imports: --user ada")
        model = import_adapter(
            actor=user, project=project, name=options["name"], folder=Path(options["what"])
        )
        if job is not None:
            record(job, "imported", model=model.name, file=str(Path(options["what"]).absolute()))
        self.stdout.write(f"{model.name} is a model of {project.name}.")


def _job(number: int) -> TrainingJob:
    job = TrainingJob.objects.filter(pk=number).first()
    if job is None:
        raise CommandError(f"There is no training job {number}.")
    return job
