"""What a folder says of itself: manifest, layout, requirements, and its copy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.environments.errors import SourceError
from orchestrator.environments.kinds.package import PackageKind
from orchestrator.environments.packages.layout import find_layout
from orchestrator.environments.packages.manifest import parse_manifest, read_manifest
from orchestrator.environments.packages.pip import reason_of
from orchestrator.environments.packages.requirements import requirements_of
from orchestrator.environments.packages.snapshot import copy_folder


def write(folder: Path, files: dict[str, str]) -> Path:
    """Files by path."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


# --- manifest ------------------------------------------------------------------------------------


def test_a_manifest_gives_what_matters_and_ignores_the_rest() -> None:
    manifest = parse_manifest(
        """
        spec_version: 1
        name: demo
        app: server.app:app
        something_new: [1, 2]
        validation:
          reward: {range: [0, 1.5]}
          resources: {episode_timeout_s: 60, memory_mb: 512.5}
          network: {mode: allowlist, allowed_hosts: [api.example.org]}
        """
    )
    assert (manifest.name, manifest.app) == ("demo", "server.app:app")
    assert manifest.episode_settings() == {"reward_range": [0.0, 1.5]}
    assert manifest.declared() == {
        "episode_timeout_s": 60.0,
        "memory_mb": 513,
        "network": "allowlist",
        "allowed_hosts": ["api.example.org"],
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- a\n- b", "a mapping"),
        ("name: [", "not YAML"),
        ("app: server.app", "app: 'server.app' is not module:attribute"),
        ("app: 'os; import x:y'", "app:"),
        ("validation: 3", "validation: a mapping"),
        ("validation: {reward: {range: [1, 0]}}", "validation.reward.range"),
        ("validation: {reward: {range: [0, .inf]}}", "validation.reward.range"),
        ("validation: {resources: {memory_mb: -1}}", "memory_mb: a positive number"),
        ("validation: {network: {allowed_hosts: api}}", "allowed_hosts: a list"),
        ("!!python/object/apply:os.system ['true']", "not YAML"),
    ],
)
def test_an_unusable_manifest_names_the_field(text: str, reason: str) -> None:
    with pytest.raises(SourceError, match=reason.replace(".", r"\.")):
        parse_manifest(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


@given(
    st.dictionaries(
        st.sampled_from(["name", "app", "description", "validation", "port", "x"]), JSON
    )
)
def test_any_content_gives_a_manifest_or_a_reason(content: dict[str, Any]) -> None:
    reason = ""
    try:
        manifest = parse_manifest(yaml.safe_dump(content))
    except SourceError as exc:
        reason = str(exc)
    assert reason.startswith("openenv.yaml: ") or manifest.app == (content.get("app") or "")


def test_a_folder_without_a_manifest_has_none(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) is None
    (tmp_path / "openenv.yaml").write_bytes(b"name: \xff")
    with pytest.raises(SourceError, match="not UTF-8"):
        read_manifest(tmp_path)


# --- layout --------------------------------------------------------------------------------------


def apps(folder: Path, app: str = "") -> list[tuple[str, bool]]:
    layout = find_layout(folder, read_manifest(folder), app)
    return [(way.app, way.is_beside) for way in layout.candidates]


def test_the_layouts_of_the_hub_are_both_tried(tmp_path: Path) -> None:
    folder = write(tmp_path / "grid_env", {"server/app.py": "app = 1"})
    both = [("grid_env.server.app:app", True), ("server.app:app", False)]
    assert apps(folder) == both
    write(folder, {"openenv.yaml": "app: server.app:app"})
    assert apps(folder) == both
    assert apps(folder, "grid_env.server.app:app") == both[:1]


def test_the_packages_own_name_goes_before_the_folders(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "my-env",
        {
            "server/app.py": "app = 1",
            "pyproject.toml": '[tool.setuptools]\npackage-dir = {"real_env" = ".", "x" = "server"}',
        },
    )
    assert find_layout(folder, None).package == "real_env"
    (folder / "pyproject.toml").unlink()
    assert find_layout(folder, parse_manifest("name: said_env")).package == "said_env"
    assert find_layout(folder, None).package == "_my_env"


@pytest.mark.parametrize(
    ("app", "reason"),
    [("", "has no server/app.py, which the OpenEnv layout"), ("a.b:c", "a/b.py"), ("a b", "app")],
)
def test_a_folder_without_the_app_says_what_was_looked_for(
    tmp_path: Path, app: str, reason: str
) -> None:
    with pytest.raises(SourceError, match=reason):
        find_layout(tmp_path, None, app)


# --- requirements --------------------------------------------------------------------------------


def test_openenv_is_left_out_where_ours_will_do(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "pyproject.toml": """
        [project]
        requires-python = ">=3.99"
        dependencies = ["openenv[core]>=0.2.2", "openenv-core @ git+https://example.org/x.git",
                        "numpy>=1.19", "tomli; python_version < '3.0'"]
        """
        },
    )
    found = requirements_of(tmp_path, ["pytest"])
    assert found.texts == ("numpy>=1.19", "pytest")
    assert "asks for Python >=3.99" in found.note


def test_a_newer_openenv_than_ours_is_asked_for(tmp_path: Path) -> None:
    write(tmp_path, {"pyproject.toml": '[project]\ndependencies = ["openenv>=999"]'})
    assert requirements_of(tmp_path).texts == ("openenv>=999",)


def test_a_requirements_file_counts_where_there_is_no_project(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "server/requirements.txt": "# of it\n--index-url https://x\nnumpy>=1 # why\n\n",
            "requirements.txt": "other",
        },
    )
    found = requirements_of(tmp_path)
    assert found.texts == ("numpy>=1",)
    assert found.ignored == ("--index-url https://x",)


def test_a_line_that_is_no_requirement_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"requirements.txt": "numpy >> 1"})
    with pytest.raises(SourceError, match=r"requirements.txt: 'numpy >> 1' is not a requirement"):
        requirements_of(tmp_path)


def test_pips_reason_is_its_first_error_with_the_conflict() -> None:
    said = """
    Collecting a
    ERROR: Cannot install a==1 and a==2 because these have conflicting dependencies.

    The conflict is caused by:
        a 2 depends on b==2.4.0
    ERROR: ResolutionImpossible: for help visit x
    """
    assert reason_of(said).startswith("Cannot install a==1")
    assert "a 2 depends on b==2.4.0" in reason_of(said)
    assert reason_of("first\nlast words\n") == "first last words"


# --- the copy ------------------------------------------------------------------------------------


def digest_of(folder: Path, to: Path) -> str:
    return copy_folder(folder, to)


def test_the_digest_is_of_contents_and_nothing_else(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "a", {"x.py": "1", "sub/y.py": "2", "__pycache__/z.pyc": "3", "v.pyc": "4"}
    )
    first = digest_of(folder, tmp_path / "one")
    os.utime(folder / "x.py", (1, 1))
    write(folder, {".git/HEAD": "ref"})
    assert digest_of(folder, tmp_path / "two") == first
    assert sorted(p.name for p in (tmp_path / "one").rglob("*")) == ["sub", "x.py", "y.py"]
    (folder / "x.py").chmod(0o755)
    second = digest_of(folder, tmp_path / "three")
    (folder / "x.py").rename(folder / "w.py")
    assert len({first, second, digest_of(folder, tmp_path / "four")}) == 3


def test_links_lead_nowhere_else(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", {"x": "1"})
    (folder / "same").symlink_to("x")
    digest_of(folder, tmp_path / "one")
    assert not (tmp_path / "one" / "same").is_symlink()
    (folder / "out").symlink_to("/etc/passwd")
    with pytest.raises(SourceError, match="out is a link out of the folder"):
        digest_of(folder, tmp_path / "two")


def test_a_folder_above_the_limit_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.environments.packages.snapshot.MAX_FILES", 2)
    folder = write(tmp_path / "a", {"x": "1", "y": "2", "z": "3"})
    with pytest.raises(SourceError, match="more than 2 files"):
        digest_of(folder, tmp_path / "one")


# --- the kind ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({}, "path: give a folder, or else a requirement"),
        ({"path": "/a", "requirement": "a"}, "one of the two"),
        ({"path": "a"}, "path: give the whole path"),
        ({"path": "/a", "app": "x"}, "app: 'x' is not module:attribute"),
        ({"requirement": "a"}, "app: needed with a requirement"),
        ({"requirement": "-r /etc/passwd", "app": "a:b"}, "is not a requirement"),
        ({"path": "/a", "requirements": "x"}, "requirements: a list"),
        ({"path": "/a", "wheels": ["--index-url"]}, "wheels: '--index-url' is not"),
        ({"path": "/a", "env": {"LD PRELOAD": "x"}}, "env: 'LD PRELOAD'"),
        ({"path": "/a", "reset": 3}, "reset"),
        ({"path": "/a", "installation": "../../x"}, "installation"),
        ({"path": "/a", "volume": "/"}, "volume: unknown"),
    ],
)
def test_a_source_that_cannot_be_installed_names_its_field(
    source: dict[str, Any], reason: str
) -> None:
    with pytest.raises(SourceError, match=reason):
        PackageKind().check_source(source)
