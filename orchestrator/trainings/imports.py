"""Adapters that were trained elsewhere become models of a project."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction

from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.blobs import sharing
from orchestrator.blobs.errors import BlobError
from orchestrator.projects.access import require
from orchestrator.projects.models import Project, Role, User
from orchestrator.trainings.errors import TrainingRefused

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
MAX_BYTES = 4 << 30
MAX_HEADER_BYTES = 32 << 20


def import_adapter(*, actor: User, project: Project, name: str, folder: Path) -> ModelEndpoint:
    """Copies an adapter in PEFT's format and makes it a model. Raises TrainingRefused.

    What is checked is what the model server would stumble over later: both files, LoRA, a rank, a
    safetensors header whose tensors are those of LoRA.
    """
    require(actor, project, Role.EDITOR)
    name = name.strip()[:120]
    if not name:
        raise TrainingRefused("Name the model that the adapter becomes.")
    _check(folder)
    with transaction.atomic():
        if ModelEndpoint.objects.filter(project=project, name=name).exists():
            raise TrainingRefused(f"The project has a model called {name!r} already.")
        model = ModelEndpoint.objects.create(
            project=project, name=name, kind=EndpointKind.LOCAL, model="", adapter_path=""
        )
        target = Path(settings.DATA_DIR) / "adapters" / str(model.pk)
        if target.exists():
            shutil.rmtree(target)  # of a row that was never committed
        target.mkdir(parents=True)
        for file in (CONFIG, WEIGHTS):
            shutil.copyfile(folder / file, target / file)
        try:
            taken = sharing.take(target)
        except BlobError as error:
            raise TrainingRefused(f"The adapter cannot be stored: {error}") from error
        if taken is not None:
            sharing.record(taken)
        model.model, model.adapter_path = f"adapter-{model.pk}", str(target)
        model.save(update_fields=["model", "adapter_path"])
    return model


def _check(folder: Path) -> None:
    for file in (CONFIG, WEIGHTS):
        if not (folder / file).is_file():
            raise TrainingRefused(
                f"{folder} has no {file}: name the folder of an adapter in PEFT's format "
                "(prime-rl writes one per step under weights/)."
            )
    if (size := (folder / WEIGHTS).stat().st_size) > MAX_BYTES:
        raise TrainingRefused(f"{WEIGHTS} has {size} bytes; accepts at most {MAX_BYTES}.")
    try:
        config = json.loads((folder / CONFIG).read_text("utf-8"))
    except ValueError as error:
        raise TrainingRefused(f"{CONFIG}: {error}") from error
    kind = config.get("peft_type") if isinstance(config, dict) else None
    if kind != "LORA":
        raise TrainingRefused(f"{CONFIG}: peft_type is {kind!r}; accepts 'LORA'.")
    rank = config.get("r")
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
        raise TrainingRefused(f"{CONFIG}: r is {rank!r}; accepts a rank of at least 1.")
    names = [name for name in _header(folder / WEIGHTS) if name != "__metadata__"]
    if not names or not all(".lora_A." in name or ".lora_B." in name for name in names):
        raise TrainingRefused(f"{WEIGHTS} holds other tensors than those of LoRA.")


def _header(path: Path) -> dict[str, Any]:
    """Of a safetensors file: eight bytes of length, then JSON."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > MAX_HEADER_BYTES:
                raise ValueError("its header is too long")
            found = json.loads(file.read(length))
    except (struct.error, ValueError) as error:
        raise TrainingRefused(f"{path.name} is no safetensors file: {error}") from error
    if not isinstance(found, dict):
        raise TrainingRefused(f"{path.name} is no safetensors file.")
    return found
