"""skillopt 0.2.0, its own trainer, in a world, with the shared proposer in the place of a model.

The published package holds no prompts and has no place to inject a model, so its prompts are
stubbed by their names, and `chat_optimizer` is replaced in the modules that imported it. It is
asked three things:

    analyst   lessons of a group of failures to at most two edits, without the edits that the
              epoch's step buffer lists as rejected
    merge     the edits of all groups to at most eight
    ranking   keeps the first two

The trainer writes its files to a folder of its own, which is deleted. Its skill document is the
seed and one paragraph for each edit; the world sees the document that `extend` makes of these.
Not used: slow update and meta skill, its final test.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

from skillopt import prompts
from skillopt.datasets.base import SplitDataLoader
from skillopt.engine.trainer import ReflACTTrainer
from skillopt.envs.base import EnvAdapter
from skillopt.gradient import aggregate, reflect
from skillopt.optimizer import clip

from benchmarks.optimizer.proposer import LIMIT, PromptChanged, propose
from benchmarks.optimizer.worlds import Claim, Server, extend

BATCH, GROUP, MERGE_LIMIT, EPOCHS = 12, 8, 8, 50
_PROMPTS = ("analyst_error", "analyst_success", "merge_failure", "merge_success", "merge_final")
_CURRENT = re.compile(
    r"\A## Current Skill\n(.*?)\n\n## (?:\w+ Budget|Patches to merge|\w+ Pool)", re.DOTALL
)
_LESSON = re.compile(r"^\[lesson\] (.*)$", re.MULTILINE)
_REJECTED = re.compile(r'^    \d+\. \[append\] "(.*)"$', re.MULTILINE)


def run(server: Server, seed: int) -> Claim:
    _stub_prompts()
    for module in (reflect, aggregate, clip):
        module.chat_optimizer = _answer
    with tempfile.TemporaryDirectory(prefix="skillopt-") as folder:
        skill = Path(folder, "seed.md")
        skill.write_text(server.world.seed_document)
        adapter = _Adapter(server)
        ReflACTTrainer(_settings(folder, skill, server, seed), adapter).train()
    return adapter.claim


def _settings(folder: str, skill: Path, server: Server, seed: int) -> dict[str, Any]:
    return {
        "out_root": str(Path(folder, "out")),
        "skill_init": str(skill),
        "seed": seed,
        "batch_size": BATCH,
        "num_epochs": EPOCHS,
        "accumulation": 1,
        "edit_budget": LIMIT,
        "min_edit_budget": LIMIT,
        "lr_scheduler": "constant",
        "merge_batch_size": MERGE_LIMIT,
        "analyst_workers": 1,
        "sel_env_num": len(server.world.select),
        "test_env_num": 0,
        "eval_test": False,
        "use_gate": True,
        "gate_metric": "soft",
        "use_slow_update": False,
        "use_meta_skill": False,
        "optimizer_model": "proposer",
        "target_model": "world",
    }


class _Adapter(EnvAdapter):
    analyst_workers = 1
    failure_only = True
    minibatch_size = GROUP
    edit_budget = LIMIT

    def __init__(self, server: Server) -> None:
        self._server = server
        self._loader = _Loader(server)
        self._seed: float | None = None
        self._best = -1.0
        self.claim = server.claim

    def get_dataloader(self) -> SplitDataLoader:
        return self._loader

    def build_env_from_batch(self, batch: Any, **_: Any) -> list[dict[str, Any]]:
        return list(batch.payload)

    def build_train_env(self, batch_size: int, seed: int, **_: Any) -> Any:
        raise NotImplementedError("batches come from the loader")

    def build_eval_env(self, env_num: int, split: str, seed: int, **_: Any) -> Any:
        raise NotImplementedError("batches come from the loader")

    def get_task_types(self) -> list[str]:
        return []

    def rollout(
        self, env_manager: list[dict[str, Any]], skill_content: str, out_dir: str, **_: Any
    ) -> list[dict[str, Any]]:
        document = self._document(skill_content)
        results = []
        for item in env_manager:
            outcome = self._server.rollout(item["task"], document)
            results.append(
                {"id": item["id"], "hard": int(outcome.reward >= 1.0), "soft": outcome.reward}
            )
            if outcome.lesson and item["split"] == "train":
                path = Path(out_dir, "predictions", item["id"], "conversation.json")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps([{"role": "lesson", "content": outcome.lesson}]))
        if env_manager[0]["split"] == "val":
            self._selected(document, sum(row["soft"] for row in results) / len(results))
        return results

    def _selected(self, document: str, score: float) -> None:
        """Keeps its best skill, by its own rule, in case the budget ends the run."""
        if self._seed is None:
            self._seed = score
        if score > self._best:
            self._best = score
            gain = score - self._seed
            self.claim = Claim(document, gain, gain > 0)
            self._server.report(self.claim)

    def _document(self, skill: str) -> str:
        seed = self._server.world.seed_document
        added = skill.removeprefix(seed.rstrip()).split("\n\n")
        return extend(self._server.world, seed, [part.strip() for part in added if part.strip()])


class _Loader(SplitDataLoader):
    def __init__(self, server: Server) -> None:
        super().__init__()
        self._splits = {
            name: [
                {"id": f"{name}-{i}", "split": name, "task": task} for i, task in enumerate(tasks)
            ]
            for name, tasks in (("train", server.world.train), ("val", server.world.select))
        }

    def setup(self, cfg: dict[str, Any]) -> None:
        """The tasks are here already."""


def _stub_prompts() -> None:
    folder = Path(prompts.__file__).parent
    for name in (*_PROMPTS, "ranking"):
        prompts._cache[str(folder / f"{name}.md")] = name


def _answer(*, system: str, user: str, **_: Any) -> tuple[str, dict[str, int]]:
    current = _CURRENT.match(user)
    if current is None:
        raise PromptChanged(f"skillopt, {system}: {user[:200]!r}")
    document, rest = current.group(1), user[current.end() :]
    if system == "ranking":
        answer: dict[str, Any] = {"selected_indices": list(range(LIMIT))}
    elif system.startswith("merge"):
        patches = json.loads(rest[rest.index("\n") :])
        proposed = [edit["content"] for patch in patches for edit in patch["edits"]]
        answer = _patch(propose(document, proposed, limit=MERGE_LIMIT))
    else:
        banned = _REJECTED.findall(rest)
        answer = {"patch": _patch(propose(document, _LESSON.findall(rest), banned=banned))}
    return json.dumps(answer), {}


def _patch(lessons: list[str]) -> dict[str, Any]:
    return {"reasoning": "", "edits": [{"op": "append", "content": x} for x in lessons]}
