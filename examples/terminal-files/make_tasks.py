"""Writes `tasks.jsonl`: questions on files, of the generator of the demo, and changes to files,
which a verifier judges.

    .venv/bin/python examples/terminal-files/make_tasks.py

Train tasks carry their author's transcript. For a change its commands are run in the sandbox and
the verifier must give the full reward afterwards, and none before; else nothing is written.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from orchestrator.environments.sandbox import Sandbox, detect, private_root, remove_folder
from orchestrator.environments.terminal.files import lay_out
from orchestrator.environments.terminal.observation import segments_of, text_of
from orchestrator.environments.terminal.spec import TaskSpec
from orchestrator.environments.terminal.tasks import WORDS, generate
from orchestrator.environments.terminal.verifier import verify

SEED = 7
QUESTIONS = {"train": 35, "select": 14, "test": 14}
PER_CHANGE = {"train": 4, "select": 3, "test": 3}
FOLDER = Path(__file__).parent

SORTED = 'test -f "$RESULT/sorted.txt" && cmp -s "$RESULT/sorted.txt" expected.txt'
MOVED = """
import json, os, pathlib

result = pathlib.Path(os.environ["RESULT"])
expected = json.loads(pathlib.Path("expected.json").read_text())
found = {
    path.relative_to(result).as_posix(): path.read_text(errors="replace")
    for path in sorted(result.rglob("*"))
    if path.is_file() and not path.is_symlink()
}
assert found == expected, found
"""
SETTING = """
import configparser, json, os, pathlib

expected = json.loads(pathlib.Path("expected.json").read_text())
path = pathlib.Path(os.environ["RESULT"], "conf", "app.ini")
assert path.is_file() and not path.is_symlink(), "conf/app.ini is gone"
parser = configparser.ConfigParser()
try:
    parser.read_string(path.read_text(errors="replace"))
    found = {name: dict(parser[name]) for name in parser.sections()}
except configparser.Error as error:
    raise AssertionError(error)
changed = found.get("main", {}).get(expected["key"]) == expected["value"]
rest = {k: v for k, v in found.get("main", {}).items() if k != expected["key"]}
kept = rest == expected["rest"] and list(found) == ["main"]
# Half for the change, half for what must stay.
print("reward:", (0.5 if changed else 0.0) + (0.5 if changed and kept else 0.0))
"""


def sort_lines(rng: random.Random) -> tuple[dict[str, Any], str]:
    words = rng.sample(WORDS, rng.randint(4, 9))
    name = rng.choice(("names.txt", "list.txt", "words.txt"))
    fields = {
        "prompt": f"{name}: sort its lines into sorted.txt, then reply done",
        "files": {name: "".join(f"{word}\n" for word in words)},
        "verifier": SORTED,
        "verifier_files": {"expected.txt": "".join(f"{word}\n" for word in sorted(words))},
    }
    return fields, f"sort {name} > sorted.txt"


def move_logs(rng: random.Random) -> tuple[dict[str, Any], str]:
    words = rng.sample(WORDS, 6)
    logs = {f"{word}.log": f"{word} started\n" for word in words[: rng.randint(2, 3)]}
    texts = {f"{word}.txt": f"{word}\n" for word in words[4:]}
    moved = {f"logs/{name}": text for name, text in logs.items()}
    fields = {
        "prompt": "move all .log files into a folder logs, then reply done",
        "files": dict(sorted({**logs, **texts}.items())),
        "verifier": MOVED,
        "verifier_language": "python",
        "verifier_files": {"expected.json": json.dumps({**moved, **texts}, sort_keys=True)},
    }
    return fields, "mkdir logs && mv *.log logs"


def change_setting(rng: random.Random) -> tuple[dict[str, Any], str]:
    keys = rng.sample(("port", "host", "color", "size", "speed", "mode"), rng.randint(3, 5))
    values = {key: str(rng.randint(2, 99)) for key in keys}
    key = rng.choice(keys)
    value = str(int(values[key]) + rng.randint(1, 9))
    rest = {k: v for k, v in values.items() if k != key}
    fields = {
        "prompt": f"conf/app.ini: set {key} to {value}, then reply done",
        "files": {
            "conf/app.ini": "[main]\n" + "".join(f"{k}={v}\n" for k, v in values.items()),
            "readme.txt": "settings are in conf\n",
        },
        "verifier": SETTING,
        "verifier_language": "python",
        "verifier_files": {
            "expected.json": json.dumps({"key": key, "value": value, "rest": rest}, sort_keys=True)
        },
    }
    return fields, f"sed -i 's/^{key}=.*/{key}={value}/' conf/app.ini"


CHANGES: dict[str, Callable[[random.Random], tuple[dict[str, Any], str]]] = {
    "sort_lines": sort_lines,
    "move_logs": move_logs,
    "change_setting": change_setting,
}


def play(spec: TaskSpec, command: str, sandbox: Sandbox, root: Path) -> list[dict[str, str]]:
    """The author's transcript, executed and verified. `RuntimeError` if it is not right."""
    folder = lay_out(root, spec.files, sandbox.isolation)
    try:
        before = verify(spec, folder, "", sandbox=sandbox, root=root)
        result = sandbox.run(command, folder)
        after = verify(spec, folder, "done", sandbox=sandbox, root=root)
    finally:
        remove_folder(folder)
    if (before, after) != (0.0, 1.0):
        raise RuntimeError(f"{spec.prompt}: `{command}` gives {after}, nothing gives {before}")
    said = text_of(segments_of(result.output, exit_status=result.exit_status))
    return [
        {"role": "assistant", "content": command},
        {"role": "user", "content": said},
        {"role": "assistant", "content": "done"},
    ]


def make() -> list[dict[str, Any]]:
    tasks = []
    for question in generate(SEED, QUESTIONS):
        record = question.as_json()
        record["group"] = record.pop("family")
        tasks.append(record)
    sandbox, root = Sandbox(detect()), private_root()
    try:
        for split, n in PER_CHANGE.items():
            for family, draw in CHANGES.items():
                for index in range(n):
                    rng = random.Random(f"{SEED}/{split}/{family}/{index}")
                    fields, command = draw(rng)
                    key = f"{split}-{family.replace('_', '-')}-{index + 1}"
                    spec = TaskSpec.from_json(fields)
                    task = {"key": key, "split": split, "group": family, **fields}
                    if split == "train":
                        task["reference"] = play(spec, command, sandbox, root)
                    tasks.append(task)
    finally:
        remove_folder(root)
    shown = [json.dumps([task["prompt"], task["files"]], sort_keys=True) for task in tasks]
    if len(set(shown)) != len(shown):
        raise RuntimeError("two tasks are the same")
    return tasks


def main() -> None:
    tasks = make()
    lines = (json.dumps(task, ensure_ascii=False) + "\n" for task in tasks)
    (FOLDER / "tasks.jsonl").write_text("".join(lines), encoding="utf-8")
    print(f"{len(tasks)} tasks written")


if __name__ == "__main__":
    main()
