"""The page on isolation and the tables of resources say what the code has."""

from __future__ import annotations

from dataclasses import fields

from orchestrator.environments.resources import Resources
from orchestrator.environments.sandbox import Limits
from orchestrator.environments.sandbox.doorway import ADDRESS
from orchestrator.environments.sandbox.proxy import ProxyLimits
from orchestrator.environments.sandbox.service import LOG_LIMIT_BYTES
from tests.docs.pages import read, rows, section

PAGE = "docs/reference/isolation.md"
MIB = 2**20


def test_every_resource_is_documented_with_its_default() -> None:
    table = rows(section("docs/reference/settings.md", "Resources of an environment version"))
    documented = {row[0].strip("`"): row[1] for row in table}
    assert set(documented) == {field.name for field in fields(Resources)}
    default = Resources()
    for name in ("max_servers", "memory_mb", "cpus", "processes", "disk_mb"):
        assert documented[name] == str(getattr(default, name)), name


def test_the_limits_of_a_command_are_the_ones_of_the_code() -> None:
    limits = Limits()
    written = {row[0]: row[1] for row in rows(section(PAGE, "Limits"))}
    expected = {
        "wall clock": f"{limits.wall_s:g} s",
        "processor time": f"{limits.cpu_s} s",
        "memory of the tree": f"{limits.tree_memory_bytes // MIB} MiB",
        "memory of a process": f"{limits.memory_bytes // MIB} MiB",
        "processes": str(limits.processes),
        "one file": f"{limits.file_bytes // MIB} MiB",
        "files together": f"{limits.folder_bytes // MIB} MiB",
        "`/tmp`": f"{limits.tmp_bytes // MIB} MiB",
        "output": f"{limits.output_bytes} bytes",
    }
    for name, text in expected.items():
        assert written[name].startswith(text), name


def test_the_proxys_limits_are_the_ones_of_the_code() -> None:
    text, limits = read(PAGE), ProxyLimits()
    assert f"{ADDRESS[0]}:{ADDRESS[1]}" in text
    assert f"{limits.tunnel_bytes // MIB} MiB" in text
    assert limits.idle_s == 120 and "two minutes without a byte" in text
    assert f"{limits.decisions:,} requests" in text
    assert f"{LOG_LIMIT_BYTES // MIB} MiB of log" in text
