from __future__ import annotations

from typing import Any

from celery.signals import worker_shutting_down

from orchestrator.celery import app
from orchestrator.jobs.execution import STOPPING, run_attempt


@app.task(name="jobs.run")
def run_job(job_id: int) -> None:
    run_attempt(job_id)


@worker_shutting_down.connect
def tell_running_jobs(**_: Any) -> None:
    STOPPING.set()
