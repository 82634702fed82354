"""compose.yaml: valid, complete, and every service runs something that there is."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.deploy.reading import DEPLOY, assert_runs, documents, settings_known, validator
from tests.deploy.test_image import TARGETS


@pytest.fixture(scope="module")
def compose() -> Any:
    (found,) = documents(DEPLOY / "compose.yaml")
    return found


def test_it_is_valid(compose: Any) -> None:
    validator("compose-spec").validate(compose)


def test_the_schema_can_refuse(compose: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        validator("compose-spec").validate({"services": {"web": {"imagee": "x"}}})


def test_all_parts_of_the_stack_are_there(compose: Any) -> None:
    assert set(compose["services"]) == {
        *("postgres", "valkey", "migrate", "web", "sweep", "worker", "gpu", "model", "objects")
    }


def test_what_is_named_is_defined(compose: Any) -> None:
    for name, service in compose["services"].items():
        assert set(service.get("secrets", [])) <= set(compose["secrets"]), name
        for volume in service.get("volumes", []):
            assert volume.partition(":")[0] in compose["volumes"], name
        needed = set(service.get("depends_on", {}))
        if mode := service.get("network_mode"):
            needed.add(mode.removeprefix("service:"))
        assert needed <= set(compose["services"]) - {name}, name
        if build := service.get("build"):
            assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == (
                DEPLOY / "Dockerfile"
            )
            assert build["target"] in TARGETS
            assert service["image"] == f"switchback:{build['target']}"


def test_our_services_run_what_there_is_and_may_do_little(compose: Any) -> None:
    for name, service in compose["services"].items():
        if not service["image"].startswith("switchback:"):
            assert re.fullmatch(r"[\w./-]+:[\w.-]*\d[\w.-]*", service["image"]), "a pinned image"
            continue
        if "command" in service:
            assert_runs(service["command"])
        assert service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name
        weak = any("unconfined" in option for option in service["security_opt"])
        assert weak == (name in {"worker", "gpu"}), name
        assert not service.get("privileged"), name
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), port


def test_settings_are_ones_that_the_product_reads(compose: Any) -> None:
    ours = {
        variable
        for service in compose["services"].values()
        if service["image"].startswith("switchback:")
        for variable in service["environment"]
    }
    assert ours <= settings_known()
    # What may be given from outside is the same setting.
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{(\w+)", text)) <= settings_known()


def test_secrets_are_made_once(tmp_path: Path, compose: Any) -> None:
    shutil.copy(DEPLOY / "make-secrets.sh", tmp_path)

    def made() -> dict[str, str]:
        subprocess.run(["sh", str(tmp_path / "make-secrets.sh")], check=True, timeout=60)
        return {path.name: path.read_text().strip() for path in (tmp_path / "secrets").iterdir()}

    found = made()
    assert set(found) == {
        secret["file"].removeprefix("./secrets/") for secret in compose["secrets"].values()
    }
    assert len(found["secret_key"]) >= 50
    assert found["postgres_password"] in found["database_url"]
    assert made() == found
    assert (tmp_path / "secrets").stat().st_mode & 0o77 == 0
    assert "secrets/" in (DEPLOY / ".gitignore").read_text().split()
