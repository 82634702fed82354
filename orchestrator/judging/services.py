"""What grading may ask for from outside, for one project: judges and code in the sandbox.

async with grading_services(project_id) as services:
    verdicts = await grade_async(spec, transcript, services=services)
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from orchestrator.judging.budget import DailyPurse, Purses
from orchestrator.judging.code import CodePool, code_pool
from orchestrator.judging.judges import Judges, Purse
from orchestrator.projects.secrets import derived_key
from rubrics.judge.ask import Answer
from rubrics.judge.question import Question
from rubrics.types import CodeRequest, CodeResult, Services


@dataclass(frozen=True)
class ProjectServices:
    """See `rubrics.types.Services`."""

    judges: Judges
    code: CodePool
    frame_secret: bytes

    async def judge(self, question: Question) -> Answer:
        return await self.judges.judge(question)

    async def run_code(self, request: CodeRequest) -> CodeResult:
        return await self.code.run(request)


@asynccontextmanager
async def grading_services(
    project_id: int, *, purse: Purse | None = None
) -> AsyncIterator[Services]:
    """For one event loop. `purse`: what judges may spend here, beside the project's own caps."""
    of_project = DailyPurse(project_id)
    both = of_project if purse is None else Purses((of_project, purse))
    async with Judges(project_id, both) as judges:
        yield ProjectServices(judges, code_pool(), derived_key("frames of judged data"))
