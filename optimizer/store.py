"""Harnesses in the database: content-addressed blobs and the map from component to blob."""

from __future__ import annotations

import hashlib

from optimizer.harness import Harness
from optimizer.models import Blob, HarnessVersion


def store_harness(*, project_id: int, harness: Harness, label: str = "") -> HarnessVersion:
    """The version with this content; made when it does not exist. Safe to call twice."""
    digests = {key: _digest(text) for key, text in harness.components().items()}
    Blob.objects.bulk_create(
        [
            Blob(sha256=digests[key], text=text, size_bytes=len(text.encode()))
            for key, text in harness.components().items()
        ],
        ignore_conflicts=True,
    )
    version, _ = HarnessVersion.objects.get_or_create(
        project_id=project_id,
        sha256=harness.sha256,
        defaults={"components": digests, "label": label},
    )
    return version


def load_harness(version: HarnessVersion) -> Harness:
    texts = dict(
        Blob.objects.filter(sha256__in=version.components.values()).values_list("sha256", "text")
    )
    return Harness.from_components({key: texts[sha] for key, sha in version.components.items()})


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
