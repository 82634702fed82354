"""Azure sandboxes: openenv's own provider and Azure's own policy, a local server behind both."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import json
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from orchestrator.environments.episode import run_episode
from orchestrator.environments.errors import ServerStartError, SourceError
from orchestrator.environments.kinds.aca import AcaKind
from orchestrator.environments.resources import Network, Resources
from orchestrator.environments.servers.aca import AcaServer, AcaSpec
from tests.waiting import wait_until

ADAPTER = "tests.doubles.aca_adapter:LocalAdapter"
SECRET = "a-long-secret-value"


@pytest.fixture
def azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The adapter's folder, with a certificate that this process trusts."""
    folder = tmp_path / "azure"
    folder.mkdir()
    write_certificate(folder)
    monkeypatch.setenv("AZURE_TEST_FOLDER", str(folder))
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "cert.pem"))
    monkeypatch.setenv("SECRET_KEY", "not-for-the-child")
    return folder


def write_certificate(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


def calls(folder: Path) -> dict[str, dict[str, Any]]:
    path = folder / "calls.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return dict(json.loads(line) for line in lines)


def spec_of(resources: Resources | None = None, **source: Any) -> AcaSpec:
    spec = AcaKind().server(
        name="v1",
        source={"image": "disk:fault", **source},
        resources=resources or Resources(slots=4),
        specs=[],
        data=Path("/nowhere"),
    )
    return replace(spec, adapter=ADAPTER)


async def test_an_episode_runs_in_a_sandbox_without_egress(azure: Path, tmp_path: Path) -> None:
    server = spec_of(env={"FAULT_IGNORE_SEED": "1"}).make(tmp_path / "server")
    assert isinstance(server, AcaServer)
    try:
        base_url = await asyncio.to_thread(server.start_container)
        assert base_url.startswith("https://")
        await asyncio.to_thread(server.wait_for_ready, base_url)
        finish = {"op": "noop", "reward": 1.0, "done": True}
        result = await run_episode(base_url, lambda view: finish)
        assert result.reward == 1.0, result
        asked = calls(azure)
        created = asked["create_sandbox"]
        assert created["egress_policy"]["default_action"] == "Deny"
        assert created["egress_policy"]["host_rules"] == []
        assert (created["disk"], created["cpu"], created["memory"]) == ("fault", "1000m", "1024Mi")
        assert created["env_vars"]["MAX_CONCURRENT_ENVS"] == "4"
        assert asked["add_port"] == {"port": 8000, "anonymous": True}
        assert "delete_sandbox" not in asked
    finally:
        await asyncio.to_thread(server.close)
    assert "delete_sandbox" in calls(azure)
    assert not server.is_alive
    server.close()
    # Whoever knows the address may use the sandbox.
    gone = await run_episode(base_url, lambda view: finish)
    assert "address that is not shown" in gone.message
    assert base_url.removeprefix("https://") not in gone.message


def test_hosts_that_are_allowed_are_the_only_ones(azure: Path, tmp_path: Path) -> None:
    network = Network(mode="allow-list", allowed_hosts=("api.example.org",))
    server = spec_of(Resources(network=network), command="python -m serve").make(tmp_path / "s")
    server.start_container()
    server.close()
    policy = calls(azure)["create_sandbox"]["egress_policy"]
    assert policy["default_action"] == "Deny"
    assert [(rule["pattern"], rule["action"]) for rule in policy["host_rules"]] == [
        ("api.example.org", "Allow")
    ]
    assert "python -m serve" in calls(azure)["exec"]["command"]


def test_a_refusal_is_told_without_the_values_of_variables(azure: Path, tmp_path: Path) -> None:
    (azure / "refuse").write_text(f"quota exceeded for {SECRET}")
    server = spec_of(env={"TOKEN": SECRET}).make(tmp_path / "server")
    with pytest.raises(
        ServerStartError, match="was not made: RuntimeError: quota exceeded"
    ) as told:
        server.start_container()
    assert SECRET not in str(told.value)
    assert not server.is_alive


def test_the_sandbox_is_deleted_when_the_worker_dies(azure: Path, tmp_path: Path) -> None:
    code = f"""
        import sys
        from pathlib import Path
        from orchestrator.environments.servers.aca import AcaSpec
        spec = AcaSpec("v1", "disk:fault", 1, "1000m", "1024Mi", adapter={ADAPTER!r})
        server = spec.make(Path({str(tmp_path / "server")!r}))
        server.start_container()
        print("made", flush=True)
        sys.stdin.read()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline().strip() == "made"
        worker.kill()
        worker.wait()
    wait_until(
        lambda: "delete_sandbox" in calls(azure), limit_s=30, what="the sandbox to be deleted"
    )


def test_without_azures_library_the_fix_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SUBSCRIPTION_ID", "RESOURCE_GROUP", "SANDBOX_GROUP", "REGION"):
        monkeypatch.setenv(f"AZURE_{name}", "x")
    code = """
        import sys
        sys.modules["azure"] = None
        sys.argv = ["aca_child"]
        from orchestrator.environments.servers.aca_child import main
        sys.exit(main())
    """
    request = {"place": {}, "image": "disk:x", "cpu": "1", "memory": "1", "env": {}, "command": "",
               "folder": "", "name": "v1", "allowed_hosts": [], "create_timeout_s": 1,
               "adapter": ADAPTER}  # fmt: skip
    monkeypatch.setenv("AZURE_TEST_FOLDER", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        input=json.dumps(request) + "\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "pip install 'openenv[aca]" in json.loads(done.stdout)["error"]
    assert calls(tmp_path) == {}


def test_an_open_network_is_refused() -> None:
    resources = Resources(network=Network(mode="open"))
    with pytest.raises(SourceError, match="egress of an Azure sandbox is always denied"):
        AcaKind().check_resources({}, resources)
    with pytest.raises(ServerStartError, match="always denied"):
        spec_of(resources)


@pytest.mark.parametrize("image", ["", "ghcr.io/a/b:1", "name:tag", "disk:", "disk:a b"])
def test_what_is_no_disk_is_refused(image: str) -> None:
    with pytest.raises(SourceError, match=r"image: .* is no disk"):
        AcaKind().check_source({"image": image})
