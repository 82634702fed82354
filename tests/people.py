"""Fixtures `people` (owner, editor, member, stranger and their project)."""

from __future__ import annotations

import pytest

from tests.base import People, make_people


@pytest.fixture
def people(db: None) -> People:
    return make_people()
