"""Tables of environments: see the module of each."""

from __future__ import annotations

from orchestrator.environments.models.checks import (
    CheckResult,
    CheckState,
    CheckStatus,
    EnvironmentCheck,
)
from orchestrator.environments.models.curriculum import (
    Curriculum,
    CurriculumDraw,
    CurriculumRollout,
    SamplerKind,
    TaskEstimate,
)
from orchestrator.environments.models.drafts import DraftTask, EnvironmentDraft, TaskUpload
from orchestrator.environments.models.egress import EgressDecision, EgressLog
from orchestrator.environments.models.environment import (
    Environment,
    EnvironmentKind,
    EnvironmentVersion,
    Split,
    Task,
)
from orchestrator.environments.models.registrations import RegistrationState, SourceRegistration

__all__ = [
    "CheckResult",
    "CheckState",
    "CheckStatus",
    "Curriculum",
    "CurriculumDraw",
    "CurriculumRollout",
    "DraftTask",
    "EgressDecision",
    "EgressLog",
    "Environment",
    "EnvironmentCheck",
    "EnvironmentDraft",
    "EnvironmentKind",
    "EnvironmentVersion",
    "RegistrationState",
    "SamplerKind",
    "SourceRegistration",
    "Split",
    "Task",
    "TaskEstimate",
    "TaskUpload",
]
