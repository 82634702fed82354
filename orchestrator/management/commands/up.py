from __future__ import annotations

import http.client
import os
import signal
import sys
import threading
import time
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from orchestrator.envvars import env_seconds
from orchestrator.management.lock import FolderInUseError, folder_lock
from orchestrator.management.ports import PortInUseError, wait_for_port
from orchestrator.management.supervisor import ChildSpec, Supervisor
from orchestrator.management.sweeper import sweep_until
from orchestrator.processes.beating import begin, end
from orchestrator.processes.models import ProcessKind
from orchestrator.shared_socket import SharedSocket
from orchestrator.sqlite.checkpoints import checkpoint_until

# Children of a supervisor that was killed need up to their own stop time to leave their ports.
_PORT_WAIT_S = env_seconds("SWITCHBACK_PORT_WAIT_S", default=12)
_HEAD_START_S = 5.0
_ALL_INTERFACES = {"", "0.0.0.0", "::"}  # noqa: S104 - compared with, not bound to


class Command(BaseCommand):
    help = "Run everything: pages, workers and the model server, restarted when they die."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
        parser.add_argument("--port", type=int, default=settings.PORT, help="port of the pages")
        parser.add_argument(
            "--no-model", action="store_true", help="do not start the local model server"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        host, port = options["host"], options["port"]
        try:
            with folder_lock(settings.DATA_DIR, port=port):
                self._run(host, port, with_model=not options["no_model"])
        except (FolderInUseError, PortInUseError) as error:
            raise CommandError(str(error)) from error

    def _run(self, host: str, port: int, *, with_model: bool) -> None:
        wait_for_port(
            host,
            port,
            limit_s=_PORT_WAIT_S,
            how_to_change="--port or SWITCHBACK_PORT",
            say=self.say,
        )
        with SharedSocket(host, port) as pages:
            self._supervise(host, port, pages, with_model=with_model)
        self.say("stopped")

    def _supervise(self, host: str, port: int, pages: SharedSocket, *, with_model: bool) -> None:
        first_page = FirstPage(host, port, self.say)
        specs = child_specs(pages, first_page)
        if with_model:
            wait_for_port(
                "127.0.0.1",
                settings.MODEL_PORT,
                limit_s=_PORT_WAIT_S,
                how_to_change="SWITCHBACK_MODEL_PORT",
                say=self.say,
            )
            specs.append(model_spec(first_page))
        self._migrate()
        supervisor = Supervisor(
            specs=specs,
            environ=child_environ(port),
            cwd=settings.BASE_DIR,
            log_folder=settings.DATA_DIR / "logs",
            say=self.say,
            drain_s=settings.DRAIN_S,
        )
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, lambda *_: supervisor.stop.set())
        beside = [threading.Thread(target=sweep_until, args=(supervisor.stop,), name="sweeper")]
        if connection.vendor == "sqlite":
            database = Path(connection.settings_dict["NAME"])
            looking_after = (supervisor.stop, database)
            beside.append(
                threading.Thread(target=checkpoint_until, args=looking_after, name="checkpoints")
            )
        for thread in beside:
            thread.start()
        begin(ProcessKind.SWEEP)
        try:
            supervisor.run(on_poll=first_page.poll)
        finally:
            supervisor.stop.set()
            for thread in beside:
                thread.join()
            end(ProcessKind.SWEEP)

    def _migrate(self) -> None:
        executor = MigrationExecutor(connection)
        if executor.migration_plan(executor.loader.graph.leaf_nodes()):
            self.say("preparing the database")
            call_command("migrate", interactive=False, verbosity=0)
        connection.close()

    def say(self, line: str) -> None:
        self.stdout.write(f"switchback: {line}")
        self.stdout.flush()


class FirstPage:
    """Lets the pages come up before workers and model compete for the cores, and says when."""

    def __init__(self, host: str, port: int, say: Callable[[str], None]) -> None:
        self._host = "127.0.0.1" if host in _ALL_INTERFACES else host
        self._port, self._say = port, say
        self._began_s = time.monotonic()
        self._is_up = False

    def poll(self) -> None:
        if not self._is_up and answers(self._host, self._port):
            self._is_up = True
            self._say(f"ready: http://{self._host}:{self._port}")

    def may_others_start(self) -> bool:
        return self._is_up or time.monotonic() - self._began_s > _HEAD_START_S


def child_specs(pages: SharedSocket, first_page: FirstPage) -> list[ChildSpec]:
    web = pages.command()
    more = [
        ChildSpec(f"web-{number}", web, is_wanted=first_page.may_others_start, fds=pages.fds)
        for number in range(2, settings.WEB_PROCESSES + 1)
    ]
    return [
        ChildSpec("web", web, fds=pages.fds),
        *more,
        ChildSpec(
            "worker",
            worker_command("default,rollouts", slots=settings.WORKER_SLOTS),
            is_wanted=first_page.may_others_start,
        ),
        ChildSpec(
            "gpu",
            worker_command(settings.GPU_QUEUES, slots=settings.GPU_SLOTS),
            is_wanted=first_page.may_others_start,
        ),
    ]


def worker_command(queues: str, *, slots: int) -> list[str]:
    """Threads: a job waits for a socket or a child process, so a slot costs next to nothing."""
    return [
        *(sys.executable, "-m", "celery", "-A", "orchestrator.celery", "worker"),
        *("-P", "threads", "-c", str(slots), "-Q", queues, "-n", f"{queues.replace(',', '-')}@%h"),
        *("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "INFO"),
    ]


def model_spec(first_page: FirstPage) -> ChildSpec:
    command = ["-m", "training.serve", "--model", str(settings.MODEL_DIR)]
    command += ["--name", settings.MODEL_NAME, "--port", str(settings.MODEL_PORT)]
    # Sampling and training take turns, so each may have the cores; beyond four the rows of a step
    # are too few to share out.
    command += ["--threads", str(min(4, os.cpu_count() or 1))]
    if settings.VLLM_URL:
        command += ["--vllm", settings.VLLM_URL, "--vllm-model", settings.VLLM_MODEL]
        command += ["--vllm-processed"] if settings.VLLM_PROCESSED else []
    config = Path(settings.MODEL_DIR) / "config.json"
    return ChildSpec(
        "model",
        [sys.executable, *command],
        is_wanted=lambda: first_page.may_others_start() and config.is_file(),
    )


def child_environ(port: int) -> dict[str, str]:
    # On the data folder's file system: the broker moves message files through it, and a move
    # across file systems is not atomic.
    temporary = settings.DATA_DIR / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": os.environ.get("DJANGO_SETTINGS_MODULE", "orchestrator.settings"),
        "SWITCHBACK_DATA": str(settings.DATA_DIR),
        "SWITCHBACK_PORT": str(port),
        "SWITCHBACK_MODEL_PORT": str(settings.MODEL_PORT),
        "TMPDIR": str(temporary),
        "PYTHONUNBUFFERED": "1",
        # glibc keeps an arena per thread otherwise, tens of MB each in long-lived servers.
        "MALLOC_ARENA_MAX": "2",
        # And it never gives large tensors back once its threshold for them has grown.
        "MALLOC_MMAP_THRESHOLD_": str(1 << 20),
        # Idle threads of the model server must not take a core from the trainer by spinning.
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE"),
    }


def answers(host: str, port: int) -> bool:
    """Whether the pages answer on `/healthz`."""
    allowed = next((name for name in settings.ALLOWED_HOSTS if name != "*"), "localhost")
    client = http.client.HTTPConnection(host, port, timeout=0.5)
    try:
        client.request("GET", "/healthz", headers={"Host": allowed})
        return client.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        client.close()
