from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from orchestrator.keeping import use
from orchestrator.keeping.models import RetentionRule, RetentionRun, WorkState
from orchestrator.keeping.retention import services
from orchestrator.keeping.retention.looking import look
from orchestrator.projects.models import Project
from orchestrator.projects.storage import amount


class Command(BaseCommand):
    help = "Apply a project's rules of retention, or say what they would take away."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("project", type=int, help="its id, as in the addresses of its pages")
        parser.add_argument("--dry-run", action="store_true", help="count and change nothing")

    def handle(self, **options: Any) -> None:
        project = Project.objects.filter(pk=options["project"]).first()
        if project is None:
            raise CommandError(f"there is no project {options['project']}")
        rules = list(RetentionRule.objects.filter(project=project).order_by("what"))
        if not rules:
            raise CommandError("the project has no rule of retention; set one on its page")
        run = RetentionRun.objects.create(
            project=project, is_dry=options["dry_run"], state=WorkState.RUNNING
        )
        try:
            found = [look(rule, run) for rule in rules]
        except BaseException as error:
            services.end(run.pk, WorkState.FAILED, str(error))
            raise
        RetentionRun.objects.filter(pk=run.pk).update(
            state=WorkState.COMPLETED,
            found=[each.as_json() for each in found],
            ended_at=timezone.now(),
        )
        removed = [f"{each.removed:,} {each.what}" for each in found if each.removed]
        if removed:
            services.record(run, removed)
            use.forget(project.pk)
        for each in found:
            kept = ", ".join(f"{reason} {count:,}" for reason, count in each.protected.items())
            self.stdout.write(
                f"{each.what}: {each.due:,} due ({amount(each.due_bytes)}), {each.marked:,} newly "
                f"marked, {each.removed:,} removed; kept for: {kept or 'nothing'}"
            )
