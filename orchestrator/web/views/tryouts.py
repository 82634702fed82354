"""Environments played by hand: choose a task, then the panel that follows the session."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from orchestrator.environments.models import Environment, EnvironmentVersion, Split, Task
from orchestrator.projects.access import project_for_edit, role_in
from orchestrator.projects.models import Role
from orchestrator.tryouts import limits, queries, reference, services
from orchestrator.tryouts.access import tryout_for_edit
from orchestrator.tryouts.errors import TryoutError, TryoutRefused
from orchestrator.tryouts.forms import action_form, read_action
from orchestrator.tryouts.models import Tryout
from orchestrator.tryouts.sealed import refuse_sealed_task
from orchestrator.web import access, run_choices
from orchestrator.web.environment_tabs import tabs_of
from orchestrator.web.frame import Crumb, page
from orchestrator.web.queries import versions_of
from orchestrator.web.tryout_cards import first_observation, timeline
from orchestrator.web.tryout_form import initial_seed, read_reset, shown_form


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def environment_try(request: HttpRequest, project_id: int, slug: str) -> HttpResponse:
    """Choose version, task and rubric; a POST starts the session and leads to its panel."""
    environment = access.environment_for_view(request.user, project_id, slug)
    if request.method == "POST":
        project_for_edit(request.user, project_id)
    asked = request.POST if request.method == "POST" else request.GET
    versions = versions_of(environment.pk)
    version = next(
        (v for v in versions if str(v.number) == asked.get("version", "")),
        versions[0] if versions else None,
    )
    key = asked.get("task", "")[:64]
    task = queries.task_by_key(version, key) if version else None
    errors: dict[str, str] = {}
    if request.method == "POST" and version is not None:
        if key and task is None:
            raise Http404("No such task.")
        read = read_reset(task.reset if task else {}, request.POST.dict())
        errors = dict(read.errors)
        if not errors:
            try:
                made = services.start_tryout(
                    actor=request.user,  # type: ignore[arg-type] # login_required
                    version=version,
                    task=task,
                    params=read.params,
                    rubric_version=_rubric(request, project_id),
                )
            except TryoutRefused as exc:
                errors["all"] = str(exc)
            else:
                return redirect("web:tryout", project_id, slug, made.pk)
    return _start_page(request, environment, versions, version, task, errors)


def _start_page(
    request: HttpRequest,
    environment: Environment,
    versions: list[EnvironmentVersion],
    version: EnvironmentVersion | None,
    task: Task | None,
    errors: dict[str, str],
) -> HttpResponse:
    project = environment.project
    can_play = role_in(request.user, project.pk) in (Role.EDITOR, Role.ADMIN)
    asked = request.POST if request.method == "POST" else request.GET
    find = request.GET.get("q", "")[:100]
    found = queries.tasks_to_try(version.pk, find=find) if version else None
    return page(
        request,
        "web/tryout_start.html",
        project,
        "environments",
        _crumbs(environment, Crumb("Try")),
        status=422 if errors else 200,
        environment=environment,
        tabs=tabs_of(environment, "web:environment_try"),
        versions=versions,
        version=version,
        task=task,
        sealed=_why_sealed(task),
        is_free=task is None and (asked.get("free") == "1" or not (found and found.total)),
        found=found,
        find=find,
        can_play=can_play,
        rubrics=queries.newest_rubrics(project.pk),
        errors=errors,
        seed=asked.get("seed") or _first_seed(task),
        extra=asked.get("extra", ""),
        chosen_rubric=_chosen_rubric(request, environment),
        latest=queries.latest_tryouts(environment.pk) if can_play else [],
        live=queries.live_tryouts(project.pk) if can_play else [],
        per_project=limits.PER_PROJECT,
    )


def _chosen_rubric(request: HttpRequest, environment: Environment) -> int | None:
    """What was chosen in the form; before that, what the environment is likely graded by."""
    if request.method == "POST":
        chosen = _rubric(request, environment.project_id)
    else:
        chosen = run_choices.likely_rubric(environment.project_id, environment.slug)
    return chosen.pk if chosen else None


def _why_sealed(task: Task | None) -> str:
    if task is None:
        return ""
    try:
        refuse_sealed_task(task)
    except TryoutRefused as exc:
        return str(exc)
    return ""


def _crumbs(environment: Environment, *more: Crumb) -> list[Crumb]:
    arguments = [environment.project_id]
    return [
        Crumb("Environments", reverse("web:environments", args=arguments)),
        Crumb(environment.name, reverse("web:environment", args=[*arguments, environment.slug])),
        *more,
    ]


def _rubric(request: HttpRequest, project_id: int) -> Any:
    chosen = request.POST.get("rubric", "")
    if not chosen.isdecimal() or len(chosen) > 18:
        return None
    return queries.rubric_version_in(project_id, int(chosen))


@login_required
@require_safe
def tryout_page(request: HttpRequest, project_id: int, slug: str, tryout_id: int) -> HttpResponse:
    tryout = tryout_for_edit(request.user, project_id, slug, tryout_id)
    return _panel(request, tryout)


def _panel(
    request: HttpRequest,
    tryout: Tryout,
    *,
    errors: dict[str, str] | None = None,
    reset_errors: dict[str, str] | None = None,
) -> HttpResponse:
    environment = tryout.version.environment
    play = queries.play_of(tryout)
    pending = queries.pending_commands(tryout.pk)
    form = action_form(tryout.action_schema, tryout.tools)
    task = tryout.task
    data = request.POST.dict() if errors else None
    resets = request.POST if reset_errors else {}
    can_save = tryout.task is not None and tryout.task.split == Split.TRAIN
    return page(
        request,
        "web/tryout.html",
        environment.project,
        "environments",
        _crumbs(
            environment,
            Crumb(
                "Try",
                reverse("web:environment_try", args=[environment.project_id, environment.slug]),
            ),
            Crumb(task.key if task else "own parameters"),
        ),
        status=422 if errors or reset_errors else 200,
        environment=environment,
        tabs=tabs_of(environment, "web:environment_try"),
        tryout=tryout,
        task=task,
        play=play,
        first=first_observation(play, tryout.created_at),
        timeline=timeline(play, tryout.created_at),
        pending=pending,
        is_running=bool(play.steps) and play.steps[-1].is_running,
        closes_at=tryout.opened_at and tryout.opened_at + timedelta(seconds=limits.LONGEST_S),
        form=shown_form(form, data, errors),
        form_key=" ".join(
            str(part)
            for part in (
                tryout.state,
                tryout.opened_at,
                play.is_over,
                play.is_done,
                play.reset is None,
                len(tryout.tools),
            )
        ),
        can_act=tryout.is_live and not play.is_over and play.reset is not None,
        seed=resets.get("seed", str(play.params.get("seed", _first_seed(task)))),
        extra=resets.get("extra", ""),
        reset_errors=reset_errors or {},
        rubrics=queries.newest_rubrics(environment.project_id),
        last=next((s for s in reversed(play.steps) if s.verdicts), None),
        can_save=can_save,
        why_not=reference.why_not(tryout, play) if can_save else "",
        is_saved=can_save and reference.is_saved(tryout, play),
        is_silent=queries.is_silent(tryout),
        final_reward=play.steps[-1].observation["reward"]
        if play.is_done and play.steps[-1].observation
        else None,
        idle_minutes=round(limits.IDLE_S / 60),
        longest_minutes=round(limits.LONGEST_S / 60),
    )


def _first_seed(task: Task | None) -> str:
    return initial_seed(task.reset, task.seeds) if task else initial_seed({}, [])


ACTIONS = ("reset", "step", "undo", "state", "rubric", "close", "restart", "save")


@login_required
@require_POST
def tryout_ask(
    request: HttpRequest, project_id: int, slug: str, tryout_id: int, what: str
) -> HttpResponse:
    """One command of the panel. A script gets JSON, a form is led back to the panel."""
    tryout = tryout_for_edit(request.user, project_id, slug, tryout_id)
    try:
        errors = _ask(request, tryout, what)
    except TryoutError as exc:
        errors = {"all": str(exc)}
    if "application/json" in request.headers.get("Accept", ""):
        return JsonResponse({"errors": errors}, status=422 if errors else 200)
    if "all" in errors:
        messages.error(request, errors["all"])
    elif errors:
        return _panel(request, tryout, **{"reset_errors" if what == "reset" else "errors": errors})
    return redirect("web:tryout", project_id, slug, tryout.pk)


def _ask(request: HttpRequest, tryout: Tryout, what: str) -> dict[str, str]:
    """Errors by form field; none if it was asked for. `TryoutError` if it cannot be now."""
    actor: Any = request.user
    if what == "step":
        form = action_form(tryout.action_schema, tryout.tools)
        read = read_action(form, request.POST.dict())
        if not read.errors:
            services.ask_step(actor=actor, tryout=tryout, action=read.value)
        return dict(read.errors)
    if what == "reset":
        of_task = tryout.task.reset if tryout.task else {}
        asked = read_reset(of_task, request.POST.dict())
        if not asked.errors:
            services.ask_reset(actor=actor, tryout=tryout, params=asked.params)
        return dict(asked.errors)
    if what == "undo":
        steps = request.POST.get("steps", "1")
        n = int(steps) if steps.isdecimal() and len(steps) < 5 else 0
        services.ask_undo(actor=actor, tryout=tryout, steps=n)
    elif what == "state":
        services.ask_state(actor=actor, tryout=tryout)
    elif what == "rubric":
        chosen = _rubric(request, tryout.version.environment.project_id)
        if chosen is None:
            return {"all": "Choose a rubric of the project."}
        services.choose_rubric(actor=actor, tryout=tryout, rubric_version=chosen)
    elif what == "close":
        services.close_tryout(actor=actor, tryout=tryout)
    elif what == "restart":
        services.restart_tryout(actor=actor, tryout=tryout)
    else:
        _save(request, tryout)
    return {}


def _save(request: HttpRequest, tryout: Tryout) -> None:
    saved = reference.save_reference(actor=request.user, tryout=tryout)  # type: ignore[arg-type] # login_required
    messages.success(
        request,
        f"The play is the reference transcript of {saved.key} in the draft of "
        f"{tryout.version.environment}. It counts once the draft is published.",
    )
