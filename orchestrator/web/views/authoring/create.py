"""New environments: which kind, and what each needs; sources on their way to becoming one."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.files.uploadedfile import UploadedFile
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from orchestrator.environments.authoring.archives import (
    MAX_BYTES,
    ArchiveRefusedError,
    unzipped,
)
from orchestrator.environments.authoring.drafts import create_environment
from orchestrator.environments.authoring.errors import FieldsRefusedError
from orchestrator.environments.errors import EnvironmentProbeError, SourceError
from orchestrator.environments.folders import CONFIG, FolderInvalid, read_files, store
from orchestrator.environments.kinds import KINDS, Kind
from orchestrator.environments.kinds.fields import Field
from orchestrator.environments.models import EnvironmentKind
from orchestrator.environments.packages.access import (
    registration_for_edit,
    registration_for_view,
)
from orchestrator.environments.packages.services import (
    KINDS_BY_REGISTRATION,
    cancel_registration,
    register_source,
)
from orchestrator.environments.services import connect_environment
from orchestrator.projects.access import project_for_edit, project_for_view
from orchestrator.projects.models import Project
from orchestrator.web import queries
from orchestrator.web.authoring_forms import (
    NETWORK_FIELDS,
    RESOURCE_FIELDS,
    Control,
    has_error,
    read,
    resources_of,
    show,
    with_errors,
)
from orchestrator.web.frame import Crumb, page
from orchestrator.web.views.authoring.drafts import user_of

NAME = Field("name", "Name", is_required=True, help="For people, up to 120 characters.")
ABOUT = Field("description", "What it is", "long_text", help="For people. A sentence is enough.")
TOLD = Field(
    "description",
    "What the agent is told",
    "long_text",
    help="Goes before each task's prompt: what the environment is, how to act in it.",
)
AUTHORED = (
    EnvironmentKind.QA,
    EnvironmentKind.TERMINAL,
    EnvironmentKind.SQL,
    EnvironmentKind.TOOLS,
)
"""Written here, task by task."""
EXAMPLES = {
    EnvironmentKind.QA: "“What is the capital of Peru?”, right when the reply is Lima.",
    EnvironmentKind.TERMINAL: "“access.log: how many requests failed?”, the file beside it.",
    EnvironmentKind.SQL: "“Give every customer of Oslo 10 % off”, right when the rows are.",
    EnvironmentKind.TOOLS: "“Which invoices match no contract?”, with search and read tools.",
    EnvironmentKind.URL: "http://127.0.0.1:8100",
    EnvironmentKind.PACKAGE: "A folder with openenv.yaml, or what pip installs: my-env==1.2.",
    EnvironmentKind.DOCKER: "registry.example.org/my-env:1.2",
    EnvironmentKind.ACA: "A disk that holds the environment; egress is denied unless allowed.",
}


@dataclass(frozen=True)
class Choice:
    """A card of the chooser."""

    value: str
    label: str
    summary: str
    needs: str
    example: str


def _choice(value: EnvironmentKind, kind: Kind) -> Choice:
    fields = [*kind.source_fields, *(kind.task_fields if value in AUTHORED else ())]
    needed = [field.label.lower() for field in fields if field.is_required]
    if value in AUTHORED:
        needed = [" and ".join(["tasks with a prompt", *needed])]
    return Choice(
        value=value.value,
        label=str(value.label),
        summary=kind.summary,
        needs=", ".join(needed) or "a folder or a package",
        example=EXAMPLES.get(value, ""),
    )


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def environment_new(request: HttpRequest, project_id: int) -> HttpResponse:
    """Which kind. A POST brings a folder as a zip file."""
    project = project_for_edit(request.user, project_id)
    problem = ""
    if request.method == "POST":
        try:
            return _import(request, project)
        except (ArchiveRefusedError, FolderInvalid) as refusal:
            problem = str(refusal)
    known = [(value, KINDS[value.value]) for value in EnvironmentKind if value.value in KINDS]
    return page(
        request,
        "web/environment_new.html",
        project,
        "environments",
        [_above(project), Crumb("New")],
        status=422 if problem else 200,
        written=[_choice(value, kind) for value, kind in known if value in AUTHORED],
        brought=[_choice(value, kind) for value, kind in known if value not in AUTHORED],
        problem=problem,
        max_mib=MAX_BYTES // 2**20,
    )


def _above(project: Project) -> Crumb:
    return Crumb("Environments", reverse("web:environments", args=[project.pk]))


def _import(request: HttpRequest, project: Project) -> HttpResponse:
    file = request.FILES.get("folder")
    if not isinstance(file, UploadedFile):
        raise ArchiveRefusedError("Choose a zip file of the folder.")
    if (file.size or 0) > MAX_BYTES:
        raise ArchiveRefusedError(
            f"The file has {(file.size or 0) // 2**20} MiB; the limit is {MAX_BYTES // 2**20} MiB."
        )
    try:
        files = unzipped(file.read(), marker=CONFIG)
    except ArchiveRefusedError as refusal:
        raise ArchiveRefusedError(f"{file.name}: {refusal}") from refusal
    stored = store(actor=user_of(request), project=project, environment=read_files(files))
    environment = stored.version.environment
    messages.success(
        request, f"{environment.name} is here, in its version {stored.version.number}."
    )
    return redirect("web:environment", project.pk, environment.slug)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def environment_create(request: HttpRequest, project_id: int, kind: str) -> HttpResponse:
    """What a kind needs. A kind that is written here only wants a name; the rest is its draft."""
    project = project_for_edit(request.user, project_id)
    if kind not in KINDS:
        raise Http404("No such kind.")
    value = EnvironmentKind(kind)
    is_authored = value in AUTHORED
    about = (NAME,) if value == EnvironmentKind.URL else (NAME, ABOUT if is_authored else TOLD)
    source = () if is_authored else KINDS[kind].source_fields
    has_limits = value in KINDS_BY_REGISTRATION
    limits, network = (RESOURCE_FIELDS, NETWORK_FIELDS) if has_limits else ((), ())
    form = Form(
        about=show(about, {}, "a-", is_new=True),
        source=show(source, {}, "s-", is_new=True),
        resources=show(limits, {}, "r-"),
        network=show(network, {}, "n-"),
    )
    if request.method == "POST":
        names, about_controls = read(about, request.POST, "a-")
        values, source_controls = read(source, request.POST, "s-")
        numbers, number_controls = read(limits, request.POST, "r-")
        reach, reach_controls = read(network, request.POST, "n-")
        form = Form(about_controls, source_controls, number_controls, reach_controls)
        if not form.has_error:
            try:
                return _create(request, project, value, names, values, resources_of(numbers, reach))
            except (FieldsRefusedError, SourceError, EnvironmentProbeError) as refusal:
                form = form.refused(refusal)
    return page(
        request,
        "web/environment_create.html",
        project,
        "environments",
        [
            _above(project),
            Crumb("New", reverse("web:environment_new", args=[project_id])),
            Crumb(str(value.label)),
        ],
        status=422 if request.method == "POST" else 200,
        kind=_choice(value, KINDS[kind]),
        form=form,
        is_authored=is_authored,
        has_limits=has_limits,
    )


@dataclass(frozen=True)
class Form:
    about: list[Control]
    source: list[Control]
    resources: list[Control]
    network: list[Control]
    problem: str = ""

    @property
    def has_error(self) -> bool:
        return has_error(self.about, self.source, self.resources, self.network)

    @property
    def limits_are_open(self) -> bool:
        return any(c.text or c.error for c in (*self.resources, *self.network))

    def refused(self, refusal: ValueError) -> Form:
        """Beside the field that the refusal names, else above the form."""
        if isinstance(refusal, FieldsRefusedError):
            errors = refusal.errors
        else:
            name, colon, reason = str(refusal).partition(": ")
            errors = {name: reason} if colon else {}
            if isinstance(refusal, EnvironmentProbeError):
                errors = {"base_url": str(refusal)}
        known = {c.field.name for c in (*self.about, *self.source)}
        if not errors.keys() & known:
            return Form(self.about, self.source, self.resources, self.network, str(refusal))
        return Form(
            with_errors(self.about, errors),
            with_errors(self.source, errors),
            self.resources,
            self.network,
        )


def _create(
    request: HttpRequest,
    project: Project,
    kind: EnvironmentKind,
    names: dict[str, str],
    source: dict[str, object],
    resources: dict[str, object],
) -> HttpResponse:
    actor = user_of(request)
    if kind in AUTHORED:
        draft = create_environment(
            actor=actor,
            project=project,
            name=names["name"],
            kind=kind.value,
            description=names.get("description", ""),
        )
        return redirect("web:draft", project.pk, draft.environment.slug)
    if kind == EnvironmentKind.URL:
        version = connect_environment(
            actor=actor,
            project=project,
            name=names["name"],
            base_url=str(source["base_url"]).strip(),
        )
        messages.success(
            request,
            f"{version.environment.name} answers. Its version {version.number} is stored.",
        )
        return redirect("web:environment", project.pk, version.environment.slug)
    registration = register_source(
        actor=actor,
        project=project,
        name=names["name"],
        kind=kind.value,
        source=source,
        resources=resources,
        description=names.get("description", ""),
    )
    return redirect("web:registration", project.pk, registration.pk)


@login_required
@require_safe
def registration_detail(
    request: HttpRequest, project_id: int, registration_id: int
) -> HttpResponse:
    """How far a source is, live; at the end its environment, or why there is none."""
    project = project_for_view(request.user, project_id)
    registration = registration_for_view(request.user, registration_id)
    if registration.project_id != project.pk:
        raise Http404("No such object.")
    # Read before the steps: what is appended meanwhile comes by the feed and changes nothing.
    last_seq = queries.last_seq(registration.stream_id)
    return page(
        request,
        "web/environment_registration.html",
        project,
        "environments",
        [_above(project), Crumb(registration.name)],
        registration=registration,
        kind=EnvironmentKind(registration.kind).label,
        steps=[
            event
            for event in queries.events_of(registration.stream_id, limit=500)
            if event.kind == "registration.step"
        ],
        last_seq=last_seq,
    )


@login_required
@require_POST
def registration_cancel(
    request: HttpRequest, project_id: int, registration_id: int
) -> HttpResponse:
    project = project_for_edit(request.user, project_id)
    registration = registration_for_edit(request.user, registration_id)
    if registration.project_id != project.pk:
        raise Http404("No such object.")
    cancel_registration(actor=user_of(request), registration=registration)
    messages.success(request, f"{registration.name} is being cancelled.")
    return redirect("web:registration", project_id, registration_id)
