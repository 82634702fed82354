"""A project with one of everything that an address can name."""

from __future__ import annotations

from typing import Any

from optimizer.models import Release
from orchestrator.environments.authoring.drafts import start_draft
from orchestrator.environments.models import (
    Environment,
    EnvironmentCheck,
    SourceRegistration,
    TaskUpload,
)
from orchestrator.events.services import create_stream
from orchestrator.grading.models import (
    Alignment,
    GoldenCase,
    HackingAlarm,
    RedTeamReport,
    Regrade,
    RegradedScore,
    RubricDraft,
    RubricSuggestion,
)
from orchestrator.keeping.models import RetentionRun, Transfer
from orchestrator.projects.models import Project, Role, User
from orchestrator.projects.services import issue_token
from orchestrator.proposing.names import HANDED_IN
from orchestrator.review.models import Annotation, ReviewItem, ReviewQueue
from orchestrator.runs.models import SavedView
from orchestrator.tryouts.models import Tryout
from rubrics.models import Rubric
from tests.gates.build import start
from tests.proposing.build import answered, make_search
from tests.web.build import (
    make_climb,
    make_rollout,
    make_run,
    make_trace,
    make_training_job,
    tasks_of,
)
from training.models import Checkpoint, Sweep, TrainingAlarm


def furnish(project: Project, user: User) -> dict[str, Any]:
    """Values of the names in addresses."""
    waiting = answered(make_search(project), HANDED_IN)
    # Two factories count their environments from one.
    Environment.objects.filter(project=project).update(slug="searched")
    run = make_run(project)
    rollout = make_rollout(run, tasks_of(run)[0])
    make_trace(rollout)
    climb = make_climb(project)
    job = make_training_job(project)
    Checkpoint.objects.create(training_job=job, step=1, path="")
    rubric = run.rubric_version.rubric
    RubricDraft.objects.create(rubric=rubric, spec=run.rubric_version.spec)
    regrade = Regrade.objects.create(
        project=project,
        rubric=rubric,
        version=run.rubric_version,
        spec=run.rubric_version.spec,
        purpose="regrade",
        state="completed",
        selection={"text": "1 rollout", "rollouts": [rollout.pk]},
        n_total=1,
        stream=create_stream(project=project, kind="regrade"),
    )
    RegradedScore.objects.create(regrade=regrade, rollout=rollout, state="scored", score=0.5)
    queue = ReviewQueue.objects.create(
        project=project, name="queue", rubric_version=run.rubric_version
    )
    item = ReviewItem.objects.create(queue=queue, rollout=rollout)
    Annotation.objects.create(
        rollout=rollout, rubric=rubric, criterion="correct", user=user, state="scored", value=1.0
    )
    sweep = Sweep.objects.create(project=project, name="sweep", lambdas=[0.0, 1.0], seeds=[1])
    # Alarms of either kind have one name in addresses.
    HackingAlarm.objects.create(
        pk=climb.pk, project=project, climb=climb, signal="gap", level="warn", value=0.2
    )
    TrainingAlarm.objects.create(
        pk=climb.pk, training_job=job, signal="kl", level="warn", step=1, value=2.0, sentence="Far."
    )
    view = SavedView.objects.create(project=project, owner=user, of="runs", name="mine")
    export = Transfer.objects.create(
        project=project, direction="export", name="words", state="completed"
    )
    look = RetentionRun.objects.create(project=project, is_dry=True, state="completed")
    release = Release.objects.create(
        project=project,
        environment=run.environment_version.environment,
        harness_id=rollout.harness_id,
        approved_by=user,
    )
    version = run.rubric_version
    case = GoldenCase.objects.create(
        rubric=rubric, name="right", expect="pass", transcript={"answer": "4", "reward": 1.0}
    )
    report = RedTeamReport.objects.create(
        rubric=rubric,
        version=version,
        spec=version.spec,
        state="completed",
        summary={"bases": [{"rollout": rollout.pk, "label": "one", "is_success": True}]},
        results=[
            {
                "attack": "empty",
                "base": 0,
                "state": "scored",
                "score": 1.0,
                "paid": True,
                "payers": [],
                "verdicts": [],
                "reason": "",
            }
        ],
    )
    alignment = Alignment.objects.create(version=version, criterion="correct", state="failed")
    suggestion = RubricSuggestion.objects.create(
        rubric=rubric, state="completed", criteria=[{"criterion": {}, "why": "", "settled": ""}]
    )
    environment = run.environment_version.environment
    draft = start_draft(actor=user, environment=environment, version=run.environment_version)
    counts = {"n_tasks": 0, "families": 0, "n_bad_rows": 0, "n_errors": 0}
    upload = TaskUpload.objects.create(
        draft=draft,
        filename="rows.csv",
        created_by=user,
        summary={**counts, "splits": {"train": 0, "select": 0, "test": 0}, "unused": []},
    )
    registration = SourceRegistration.objects.create(
        project=project,
        stream=create_stream(project=project, kind="registration"),
        name="package",
        kind="package",
        state="failed",
    )
    tryout = Tryout.objects.create(
        version=run.environment_version,
        user=user,
        stream=create_stream(project=project, kind="tryout"),
        task=tasks_of(run)[0],
        state="ended",
    )
    token = issue_token(actor=user, project_id=project.pk, name="t", role=Role.VIEWER).token
    check = EnvironmentCheck.objects.create(version=run.environment_version, state="completed")
    return {
        "project_id": project.pk,
        "slug": run.environment_version.environment.slug,
        "number": 1,
        "check_id": check.pk,
        "rubric_id": rubric.pk,
        "regrade_id": regrade.pk,
        "harness_id": rollout.harness_id,
        "model_id": run.model_id,
        "run_id": run.pk,
        "rollout_id": rollout.pk,
        "search_id": waiting.search_id,
        "proposal_id": waiting.pk,
        "token_id": token.pk,
        "user_id": user.pk,
        "left_id": rollout.pk,
        "right_id": rollout.pk,
        "before_id": rollout.harness_id,
        "after_id": rollout.harness_id,
        "climb_id": climb.pk,
        "job_id": job.pk,
        "step": 1,
        "queue_id": queue.pk,
        "item_id": item.pk,
        "round": waiting.round,
        "case_id": case.pk,
        "report_id": report.pk,
        "alignment_id": alignment.pk,
        "suggestion_id": suggestion.pk,
        "key": tasks_of(run)[0].key,
        "upload_id": upload.pk,
        "registration_id": registration.pk,
        "tryout_id": tryout.pk,
        "sweep_id": sweep.pk,
        "alarm_id": climb.pk,
        "view_id": view.pk,
        "export_id": export.pk,
        "look_id": look.pk,
        "release_id": release.pk,
        "gate_id": start(project, user).pk,
    }


def rubric_of(project: Project) -> Rubric:
    return Rubric.objects.filter(project=project).earliest("pk")
