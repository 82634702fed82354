"""The manifests: valid for the API, whole, and each container runs something that there is."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from tests.deploy.reading import DEPLOY, assert_runs, documents, schema, settings_known, validator
from tests.deploy.test_image import TARGETS

FOLDER = DEPLOY / "kubernetes"
API = schema("kubernetes-1.31")
(KUSTOMIZATION,) = documents(FOLDER / "kustomization.yaml")
MANIFESTS = [each for name in KUSTOMIZATION["resources"] for each in documents(FOLDER / name)]


def _id(manifest: Any) -> str:
    return f"{manifest['kind']}-{manifest['metadata']['name']}"


def _valid(manifest: Any) -> None:
    root = API["kinds"][f"{manifest['apiVersion']}:{manifest['kind']}"]
    validator("kubernetes-1.31", root).validate(manifest)


def _pods() -> Iterator[tuple[str, Any]]:
    for manifest in MANIFESTS:
        if "template" in manifest.get("spec", {}):
            yield _id(manifest), manifest["spec"]["template"]


PODS = dict(_pods())


def _containers(pod: Any) -> list[Any]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def test_every_file_is_listed() -> None:
    files = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert sorted(KUSTOMIZATION["resources"]) == sorted(files)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=_id)
def test_it_is_valid(manifest: Any) -> None:
    _valid(manifest)


def test_the_schema_can_refuse() -> None:
    manifest = yaml.safe_load(yaml.safe_dump(MANIFESTS[-1]))
    manifest["spec"]["podSelectorr"] = {}
    with pytest.raises(jsonschema.ValidationError):
        _valid(manifest)


@pytest.mark.parametrize("name", PODS)
def test_a_pod_is_selected_by_its_owner_and_confined(name: str) -> None:
    (owner,) = [manifest for manifest in MANIFESTS if _id(manifest) == name]
    labels = PODS[name]["metadata"]["labels"]
    if "selector" in owner["spec"]:
        assert owner["spec"]["selector"]["matchLabels"] == labels
    spec = PODS[name]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["automountServiceAccountToken"] is False
    runs_agents = name in {"Deployment-switchback-worker", "StatefulSet-switchback-gpu"}
    profile = spec["securityContext"]["seccompProfile"]["type"]
    assert profile == ("Unconfined" if runs_agents else "RuntimeDefault")
    # A whole /proc is allowed to pods with user namespaces of their own alone.
    assert (spec.get("hostUsers") is False) == runs_agents


@pytest.mark.parametrize("name", PODS)
def test_each_container_runs_what_there_is(name: str) -> None:
    pod = PODS[name]
    images = {image["name"]: image["newTag"] for image in KUSTOMIZATION["images"]}
    assert set(images.values()) == set(TARGETS)
    volumes = {volume["name"] for volume in pod["spec"].get("volumes", [])}
    (owner,) = [manifest for manifest in MANIFESTS if _id(manifest) == name]
    volumes |= {each["metadata"]["name"] for each in owner["spec"].get("volumeClaimTemplates", [])}
    for container in _containers(pod):
        assert container["image"] in images, container["name"]
        if "command" in container:
            assert_runs(container["command"])
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in container["resources"]["limits"], container["name"]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert set(mounts) <= volumes
        assert mounts["data"] == "/data"
        assert mounts["tmp"] == "/tmp"


def test_names_lead_to_what_there_is() -> None:
    by_id = {_id(manifest): manifest for manifest in MANIFESTS}
    web = by_id["Service-switchback-web"]["spec"]
    labels = {name: pod["metadata"]["labels"] for name, pod in PODS.items()}
    for manifest in MANIFESTS:
        kind, spec = manifest["kind"], manifest.get("spec", {})
        if kind == "Service":
            assert spec["selector"] in labels.values()
        elif kind in {"PodDisruptionBudget", "NetworkPolicy"}:
            wanted = (spec.get("selector") or spec["podSelector"])["matchLabels"].items()
            assert any(wanted <= each.items() for each in labels.values())
        elif kind == "HorizontalPodAutoscaler":
            assert f"{spec['scaleTargetRef']['kind']}-{spec['scaleTargetRef']['name']}" in by_id
        elif kind == "Ingress":
            backend = spec["rules"][0]["http"]["paths"][0]["backend"]["service"]
            assert backend["name"] == "switchback-web"
            assert backend["port"]["name"] in {port["name"] for port in web["ports"]}
            assert spec["tls"][0]["hosts"] == [spec["rules"][0]["host"]]
        elif kind == "StatefulSet":
            assert f"Service-{spec['serviceName']}" in by_id
    (container,) = PODS["Deployment-switchback-web"]["spec"]["containers"]
    assert web["ports"][0]["targetPort"] in {port["name"] for port in container["ports"]}


def test_the_pages_are_asked_under_a_name_that_they_answer_to() -> None:
    config = next(each for each in MANIFESTS if each["kind"] == "ConfigMap")["data"]
    (container,) = PODS["Deployment-switchback-web"]["spec"]["containers"]
    for probe, path in {
        "startupProbe": "/healthz",
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz",
    }.items():
        asked = container[probe]["httpGet"]
        assert asked["path"] == path
        headers = {header["name"]: header["value"] for header in asked["httpHeaders"]}
        assert headers["Host"] in config["SWITCHBACK_HOSTS"].split(",")
    ingress = next(each for each in MANIFESTS if each["kind"] == "Ingress")
    assert ingress["spec"]["rules"][0]["host"] in config["SWITCHBACK_HOSTS"].split(",")


def test_settings_are_ones_that_the_product_reads() -> None:
    config = next(each for each in MANIFESTS if each["kind"] == "ConfigMap")["data"]
    head = (FOLDER / "kustomization.yaml").read_text(encoding="utf-8")
    given = {*config, *re.findall(r"--from-literal=(\w+)=", head)}
    assert {name for name in given if not name.startswith("AWS_")} <= settings_known()
    for pod in PODS.values():
        for container in _containers(pod):
            assert {each["name"] for each in container.get("env", [])} <= settings_known()


def test_kustomize_builds_it() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on this machine")
    built = subprocess.run(
        ["kubectl", "kustomize", str(FOLDER)], capture_output=True, text=True, timeout=120
    )
    assert built.returncode == 0, built.stderr
    found = [each for each in yaml.safe_load_all(built.stdout) if each]
    assert len(found) == len(MANIFESTS)
    for manifest in found:
        _valid(manifest)
        assert manifest["metadata"]["namespace"] == KUSTOMIZATION["namespace"]
    assert "registry.example.com/switchback:web" in built.stdout
