"""Celery only announces: a message says that a Job row may run now (see `orchestrator.jobs`)."""

from __future__ import annotations

import os
from pathlib import Path

from celery import Celery
from django.conf import settings

from orchestrator.jobs.file_transport import use_for_filesystem

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orchestrator.settings")

use_for_filesystem()
app = Celery("switchback")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

for _name in ("data_folder_in", "control_folder"):
    if _folder := settings.CELERY_BROKER_TRANSPORT_OPTIONS.get(_name):
        Path(_folder).mkdir(parents=True, exist_ok=True)
