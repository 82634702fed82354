"""Installing a source into a virtual environment of its own.

The environment sees the packages of this installation behind its own, so openenv is not installed
again and each source may still take other versions of what both use. pip runs in the sandbox, in a
workplace of its own (`workplace`). The result is put beside its place and renamed when all of it is
there: what exists is whole. A lock per digest keeps two installers from doing the same work.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import sys
import threading
import venv
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from orchestrator.blobs import sharing
from orchestrator.environments.errors import SourceError
from orchestrator.environments.packages import elsewhere
from orchestrator.environments.packages.installation import (
    DONE,
    Installation,
    is_installation,
    packages_root,
    shared_packages,
)
from orchestrator.environments.packages.layout import Candidate, find_layout
from orchestrator.environments.packages.manifest import Manifest, read_manifest
from orchestrator.environments.packages.pip import Pip, newest_version
from orchestrator.environments.packages.preparing import Check, Prepared, Report
from orchestrator.environments.packages.requirements import (
    OPENENV_NAMES,
    openenv_version,
    parse_requirements,
    requirements_of,
)
from orchestrator.environments.packages.snapshot import copy_folder
from orchestrator.environments.packages.workplace import workplace

FORMAT = 1
"""Of an installation's folder; part of its digest."""
_STAGING = ".staging-"
_LOCK_POLL_S = 0.5


def prepare_package(
    source: Mapping[str, Any], *, data: Path, report: Report, check: Check
) -> Prepared:
    """The source, installed and frozen. Quick if its content is installed already.

    Raises:
        SourceError: what failed, with pip's own words; whatever `check` raises, after a clean-up.
    """
    root = packages_root(data)
    root.mkdir(parents=True, exist_ok=True)
    _sweep(root)
    staging = Installation(root / f"{_STAGING}{os.getpid()}-{secrets.token_hex(4)}")
    staging.folder.mkdir()
    try:
        plan = _plan(source, staging, report, check)
        installed = Installation(root / plan["digest"])
        with _only_one(root / f"{plan['digest']}.lock", report, check):
            if not installed.is_complete:
                _install(plan, staging, installed, report, check)
    except SourceError:
        _keep_log(staging, root)
        raise
    finally:
        shutil.rmtree(staging.folder, ignore_errors=True)
    manifest: Manifest | None = plan["manifest"]
    return Prepared(
        source={
            **{k: v for k, v in source.items() if v not in ("", None, [], {})},
            "installation": installed.folder.name,
            "installed": installed.facts()["packages"],
            **({"notes": notes} if (notes := _notes(plan)) else {}),
            **({"declared": declared} if manifest and (declared := manifest.declared()) else {}),
        },
        settings=manifest.episode_settings() if manifest else {},
        summary=manifest.summary if manifest else "",
    )


def _plan(
    source: Mapping[str, Any], staging: Installation, report: Report, check: Check
) -> dict[str, Any]:
    """What to install, under which digest. Copies folders into `staging`."""
    plan: dict[str, Any] = {"manifest": None, "copied": "", "data": "", "notes": []}
    further = [str(text) for text in source.get("requirements") or ()]
    if path := str(source.get("path") or ""):
        folder = Path(path).expanduser()
        if not folder.is_dir():
            raise SourceError(f"path: {folder} is not a folder on this machine")
        report(f"Copying {folder.name}")
        plan["manifest"] = read_manifest(folder)
        layout = find_layout(folder.resolve(), plan["manifest"], str(source.get("app") or ""))
        plan["copied"] = copy_folder(folder, staging.source / layout.package)
        read = requirements_of(staging.source / layout.package, further)
        plan["requirements"] = list(read.texts)
        plan["notes"] = [read.note] if read.note else []
        if read.ignored:
            plan["notes"].append(f"Left out of its requirements: {', '.join(read.ignored)}"[:500])
        plan["apps"] = [_way(candidate, layout.package) for candidate in layout.candidates]
    else:
        wanted = str(source["requirement"])
        plan["requirements"] = [_pinned(wanted, report, check), *further]
        parse_requirements(further, "requirements")
        plan["apps"] = [{"app": str(source["app"]), "root": "."}]
    if files := str(source.get("data") or ""):
        folder = Path(files).expanduser()
        if not folder.is_dir():
            raise SourceError(f"data: {folder} is not a folder on this machine")
        plan["data"] = copy_folder(folder, staging.data)
    plan["wheels"] = [str(text) for text in source.get("wheels") or ()]
    parse_requirements(plan["wheels"], "wheels")
    content = {
        **{k: plan[k] for k in ("copied", "data", "requirements", "wheels", "apps")},
        "format": FORMAT,
        "python": list(sys.version_info[:2]),
        "openenv": openenv_version(),
    }
    text = json.dumps(content, sort_keys=True)
    plan["digest"] = hashlib.sha256(text.encode()).hexdigest()[:24]
    return plan


def _notes(plan: Mapping[str, Any]) -> list[str]:
    """What whoever registers should know."""
    notes = list(plan["notes"])
    manifest: Manifest | None = plan["manifest"]
    if manifest and manifest.network in ("public", "allowlist"):
        hosts = f" ({', '.join(manifest.allowed_hosts)})" if manifest.allowed_hosts else ""
        notes.append(f"Its manifest asks for network: {manifest.network}{hosts}. Nothing is given.")
    return notes


def _way(candidate: Candidate, package: str) -> dict[str, str]:
    """A way to import the app, with the folder below `src` that comes first on the path."""
    return {"app": candidate.app, "root": "." if candidate.is_beside else package}


def _pinned(requirement: str, report: Report, check: Check) -> str:
    """The requirement with the version that an index has for it now: what is frozen has one."""
    (parsed,) = parse_requirements([requirement], "requirement")
    if parsed.url or any(spec.operator == "==" for spec in parsed.specifier):
        return str(parsed)
    report(f"Looking up {parsed.name}")
    extras = f"[{','.join(sorted(parsed.extras))}]" if parsed.extras else ""
    return f"{parsed.name}{extras}=={newest_version(parsed, check)}"


def _install(
    plan: Mapping[str, Any],
    staging: Installation,
    installed: Installation,
    report: Report,
    check: Check,
) -> None:
    """Fills `staging` and puts it into its place."""
    report("Making a virtual environment")
    for folder in (staging.source, staging.data, staging.wheels):
        folder.mkdir(exist_ok=True)
    with workplace(staging, installed, _make_venv) as (work, inside):
        pip = Pip(work, inside, staging.log, report)
        if plan["requirements"]:
            # openenv among the wishes makes pip keep what it needs in versions that fit it.
            pip.install([*plan["requirements"], f"openenv=={openenv_version()}"], check)
        if plan["wheels"]:
            pip.download(plan["wheels"], "wheels", check)
    facts = {
        "format": FORMAT,
        "packages": _own_packages(staging.folder / "venv"),
        "requirements": plan["requirements"],
        "apps": plan["apps"],
    }
    (staging.folder / DONE).write_text(json.dumps(facts, indent=1), encoding="utf-8")
    # What lies there is a leftover: an installation is complete or has no `installed.json`.
    shutil.rmtree(installed.folder, ignore_errors=True)
    staging.folder.rename(installed.folder)


def _make_venv(folder: Path) -> None:
    """An environment without pip of its own, that sees our packages behind its own.

    openenv's other name is noted as installed, so that nothing fetches it a second time.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    site = next((folder / "lib").glob("python*")) / "site-packages"
    (site / "zz_switchback.pth").write_text("\n".join(shared_packages()) + "\n", encoding="utf-8")
    version = openenv_version()
    for name in OPENENV_NAMES - {"openenv"}:
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8"
        )
        (info / "INSTALLER").write_text("switchback\n", encoding="utf-8")


def _own_packages(folder: Path) -> list[str]:
    """`name==version` of what was installed into the environment itself."""
    site = next((folder / "lib").glob("python*")) / "site-packages"
    found = {
        f"{dist.metadata['Name']}=={dist.version}"
        for dist in metadata.distributions(path=[str(site)])
    }
    return sorted(text for text in found if text.partition("==")[0] not in OPENENV_NAMES)


def _keep_log(staging: Installation, root: Path) -> None:
    """Of a failed installation: there may be more in it than the message has room for."""
    if staging.log.is_file():
        logs = root / "failed"
        logs.mkdir(exist_ok=True)
        shutil.copyfile(staging.log, logs / f"{staging.folder.name.removeprefix(_STAGING)}.log")


@contextlib.contextmanager
def _only_one(path: Path, report: Report, check: Check) -> Iterator[None]:
    """One installer of a digest at a time, over all processes of this machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                report("Waiting for another installation of the same content")
                check()
                # A blocking call could not be stopped by `check`.
                threading.Event().wait(_LOCK_POLL_S)
        yield


def _sweep(root: Path) -> None:
    """Removes what installers left behind whose process is gone."""
    for left in root.glob(f"{_STAGING}*"):
        pid = left.name.removeprefix(_STAGING).partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            shutil.rmtree(left, ignore_errors=True)


def share_installation(source: Mapping[str, Any], data: Path) -> sharing.Taken | None:
    """Puts the installation that a frozen source names where other hosts find it."""
    name = str(source.get("installation") or "")
    return elsewhere.share(Installation(packages_root(data) / name)) if name else None


def installed_source(
    source: Mapping[str, Any], data: Path
) -> tuple[Installation, list[dict[str, str]]]:
    """The installation that a frozen source names, and the ways to import its app."""
    name = str(source.get("installation") or "")
    installed = Installation(packages_root(data) / name)
    if is_installation(name) and not installed.is_complete and sharing.is_offered(installed.folder):
        with _only_one(packages_root(data) / f"{name}.lock", lambda _: None, lambda: None):
            if not installed.is_complete:
                elsewhere.fetch(installed, _make_venv)
    # A source may come from whoever writes drafts: its name must not lead elsewhere.
    if not is_installation(name) or not installed.is_complete:
        raise SourceError(
            f"the installation {name or '(none)':.80} is not below {packages_root(data)}: register "
            f"the source on this machine, or copy the folder from the one where it was registered"
        )
    apps = [
        {"app": str(way["app"]), "root": str((installed.source / way["root"]).resolve())}
        for way in installed.facts()["apps"]
    ]
    return installed, apps
