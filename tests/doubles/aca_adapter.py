"""What Azure's library does for openenv's provider, done by a server on this machine.

Used inside the product's child process through the provider's `_adapter` seam. In the folder that
AZURE_TEST_FOLDER names it finds a certificate (`cert.pem`, `key.pem`) and keeps what it was asked
for (`calls.jsonl`). A file `refuse` there makes the creation fail with its text.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

DOUBLES = Path(__file__).parent
SERVE = "import sys; sys.modules['gradio'] = None; import uvicorn; uvicorn.main()"


class LocalAdapter:
    def __init__(self) -> None:
        self._folder = Path(os.environ["AZURE_TEST_FOLDER"])
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]

    def create_sandbox(self, *, egress_policy: Any, **asked: Any) -> Any:
        self._note("create_sandbox", egress_policy=asdict(egress_policy), **asked)
        refusal = self._folder / "refuse"
        if refusal.exists():
            raise RuntimeError(refusal.read_text())
        print("a library that prints")
        return subprocess.Popen(
            [
                *(sys.executable, "-c", SERVE, "fault_env:app", "--app-dir", str(DOUBLES)),
                *("--host", "127.0.0.1", "--port", str(self._port), "--log-level", "warning"),
                *("--ssl-certfile", str(self._folder / "cert.pem")),
                *("--ssl-keyfile", str(self._folder / "key.pem")),
            ],
            env={"PATH": os.environ["PATH"], **(asked["env_vars"] or {})},
        )

    def add_port(self, sandbox: Any, *, port: int, anonymous: bool) -> str:
        self._note("add_port", port=port, anonymous=anonymous)
        return f"https://127.0.0.1:{self._port}"

    def exec(self, sandbox: Any, command: str, *, working_directory: str | None = None) -> str:
        self._note("exec", command=command, working_directory=working_directory)
        return ""

    def delete_sandbox(self, sandbox: Any) -> None:
        sandbox.kill()
        sandbox.wait()
        self._note("delete_sandbox")

    def close(self) -> None:
        self._note("close")

    def _note(self, name: str, **asked: Any) -> None:
        with (self._folder / "calls.jsonl").open("a") as calls:
            calls.write(json.dumps([name, asked]) + "\n")
