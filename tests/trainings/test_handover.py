"""Jobs that prime-rl runs, and adapters that come back."""

from __future__ import annotations

import json
import struct
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.trainings.handover import handovers_of
from tests.base import People
from tests.trainings.build import start
from training.models import TrainingJob

pytestmark = pytest.mark.django_db


def primerl(*words: Any, **options: Any) -> None:
    call_command("primerl", *(str(word) for word in words), **options)


@pytest.fixture
def job(people: People) -> TrainingJob:
    return start(people)


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    folder = tmp_path / "step_50"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 8}))
    write_tensors(folder, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight")
    return folder


def write_tensors(folder: Path, *names: str) -> None:
    about = {name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for name in names}
    header = json.dumps({"__metadata__": {"format": "pt"}, **about}).encode()
    (folder / "adapter_model.safetensors").write_bytes(
        struct.pack("<Q", len(header)) + header + b"\0" * 4
    )


def test_train_tasks_alone_are_handed_over_with_their_seeds(
    job: TrainingJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.toml"
    primerl("export", job.pk, to=file, model="Qwen/Qwen3-0.6B", slurm_job="climb")
    config = tomllib.loads(file.read_text())
    (source,) = config["orchestrator"]["train"]["source"]
    resets = source["env"]["taskset"]["resets"]
    assert source["env"]["taskset"]["base_url"] == "http://127.0.0.1:9"
    assert len(resets) == 5 and len({reset["seed"] for reset in resets}) == 5
    assert config["model"]["name"] == "Qwen/Qwen3-0.6B"
    assert config["max_steps"] == 3 and config["slurm"] == {"job_name": "climb"}
    said = capsys.readouterr()
    assert "differs: policy loss ppo_clip" in said.err
    assert "not checked by prime-rl's own classes" in said.out


def test_what_prime_rl_refuses_is_not_written(job: TrainingJob, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\ncat > /dev/null\necho 'max_steps: too few'\nexit 3\n")
    python.chmod(0o700)
    with pytest.raises(CommandError, match="max_steps: too few"):
        primerl("export", job.pk, to=tmp_path / "job.toml", check_with=str(python))
    assert not (tmp_path / "job.toml").exists()


def test_an_environment_of_ours_needs_an_address(job: TrainingJob) -> None:
    environment = job.environment_version.environment  # type: ignore[union-attr] # has one
    environment.kind = "terminal"
    environment.save()
    with pytest.raises(CommandError, match="prime-rl cannot reach it"):
        primerl("export", job.pk)
    primerl("export", job.pk, environment_url="http://env-host:8102")


def test_a_job_is_launched_and_its_words_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "rl"
    program.write_text(f"#!{sys.executable}\nimport sys\nprint('step 1', *sys.argv[1:])\n")
    program.chmod(0o700)
    file = tmp_path / "job.toml"
    file.write_text("")
    primerl("launch", file, rl=str(program), dry_run=True)
    said = f"step 1 @ {file} --dry-run"
    assert said in capsys.readouterr().out and said in (tmp_path / "job.log").read_text()
    program.write_text(f"#!{sys.executable}\nraise SystemExit('no GPU here')\n")
    with pytest.raises(CommandError, match="ended with 1"):
        primerl("launch", file, rl=str(program))
    assert "no GPU here" in (tmp_path / "job.log").read_text()
    with pytest.raises(CommandError, match="install prime-rl"):
        primerl("launch", file, rl=str(tmp_path / "nothing"))


def test_the_page_of_a_job_tells_of_its_handover(
    job: TrainingJob, people: People, adapter: Path, data: Path, tmp_path: Path, client: Client
) -> None:
    file = tmp_path / "job.toml"
    primerl("export", job.pk, to=file)
    program = tmp_path / "rl"
    program.write_text(f"#!{sys.executable}\nraise SystemExit(7)\n")
    program.chmod(0o700)
    with pytest.raises(CommandError, match="ended with 7"):
        primerl("launch", file, rl=str(program), job=job.pk)
    program.write_text(f"#!{sys.executable}\n")
    primerl("launch", file, rl=str(program), job=job.pk)
    primerl("import", adapter, user=people.editor.username, name="grid", job=job.pk)
    told = handovers_of(job)
    states = ["exported", "started", "failed", "started", "ended", "imported"]
    assert [turn["state"] for turn in told] == states
    assert told[2]["code"] == 7
    client.force_login(people.member)
    page = client.get(reverse("web:training_job", args=[job.project_id, job.pk])).content.decode()
    assert "Handed over to prime-rl" in page
    assert "not checked by prime-rl’s own classes" in page
    assert "policy loss ppo_clip" in page  # among what differs
    assert "exit code 7" in page
    assert "as the model grid" in page
    with pytest.raises(CommandError, match="no training job 99999"):
        primerl("launch", file, rl=str(program), job=99999)


def test_an_adapter_comes_back_as_a_model(people: People, adapter: Path, data: Path) -> None:
    options = {"project": people.project.pk, "name": "grid, 50 steps"}
    primerl("import", adapter, user=people.editor.username, **options)
    model = ModelEndpoint.objects.get(name="grid, 50 steps")
    assert model.kind == EndpointKind.LOCAL and model.project == people.project
    kept = Path(model.adapter_path)
    assert kept.is_relative_to(data)
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        assert (kept / name).read_bytes() == (adapter / name).read_bytes()
    with pytest.raises(CommandError, match="has a model called"):
        primerl("import", adapter, user=people.editor.username, **options)


def test_a_viewer_imports_nothing(people: People, adapter: Path) -> None:
    with pytest.raises(CommandError):
        primerl("import", adapter, user=people.member.username, project=people.project.pk, name="x")
    assert not ModelEndpoint.objects.filter(name="x").exists()


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (lambda f: (f / "adapter_config.json").unlink(), "has no adapter_config.json"),
        (lambda f: (f / "adapter_config.json").write_text("{"), "adapter_config.json"),
        (lambda f: (f / "adapter_config.json").write_text('{"peft_type": "IA3"}'), "'IA3'"),
        (
            lambda f: (f / "adapter_config.json").write_text('{"peft_type": "LORA", "r": true}'),
            "a rank",
        ),
        (lambda f: (f / "adapter_model.safetensors").write_bytes(b"PK"), "no safetensors file"),
        (lambda f: (f / "adapter_model.safetensors").write_bytes(b"\xff" * 64), "too long"),
        (lambda f: write_tensors(f, "model.embed_tokens.weight"), "other tensors"),
    ],
)
def test_what_is_no_adapter_is_refused(
    people: People, adapter: Path, spoil: Any, word: str
) -> None:
    spoil(adapter)
    with pytest.raises(CommandError, match=word):
        primerl("import", adapter, user=people.editor.username, project=people.project.pk, name="x")
    assert not ModelEndpoint.objects.filter(name="x").exists()
