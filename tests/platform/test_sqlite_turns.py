"""Who writes to SQLite waits for a turn, in one process and between processes."""

from __future__ import annotations

import gc
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, transaction
from django.db.utils import ConnectionHandler

from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.django_db(transaction=True)  # or no connection at all is allowed

HOLD = """
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
held.execute("INSERT INTO said VALUES ('first')")
held.execute("COMMIT")
"""


def connected(path: Path, *, timeout_s: float = PATIENCE_S) -> Any:
    """A connection of the product's backend, on a file of its own."""
    options = {"transaction_mode": "IMMEDIATE", "timeout": timeout_s}
    options["init_command"] = "PRAGMA journal_mode=WAL"
    one = {"ENGINE": "orchestrator.sqlite", "NAME": str(path), "OPTIONS": options}
    return ConnectionHandler({"default": one})["default"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "turns.sqlite3"
    connection = connected(path)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE said (word TEXT UNIQUE)")
    connection.close()
    return path


def words(path: Path) -> list[str]:
    with sqlite3.connect(path) as plain:
        return [word for (word,) in plain.execute("SELECT word FROM said ORDER BY rowid")]


def say(connection: Any, word: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO said VALUES (%s)", [word])


def in_transaction(connection: Any, *said: str) -> None:
    connection.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
    try:
        for word in said:
            say(connection, word)
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    finally:
        connection.set_autocommit(True)


def test_many_threads_write_and_nobody_is_refused(path: Path) -> None:
    refused: list[BaseException] = []

    def work(number: int) -> None:
        connection = connected(path)
        try:
            for turn in range(10):
                in_transaction(connection, f"a{number}-{turn}", f"b{number}-{turn}")
                say(connection, f"c{number}-{turn}")  # outside a transaction
        except BaseException as error:
            refused.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == []
    assert len(words(path)) == 240


def test_waits_for_another_process(path: Path) -> None:
    def say_second() -> None:
        connection = connected(path)
        in_transaction(connection, "second")
        connection.close()

    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None and other.stdin is not None
        assert other.stdout.readline() == "held\n"
        waiting = threading.Thread(target=say_second)
        waiting.start()
        waiting.join(0.05)
        assert waiting.is_alive(), "the database is held"
        other.stdin.write("\n")
        other.stdin.flush()
        waiting.join(PATIENCE_S)
    assert words(path) == ["first", "second"]


def test_gives_up_with_the_words_of_sqlite_and_passes_the_turn_on(path: Path) -> None:
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    connection = connected(path, timeout_s=0.05)
    for write in (in_transaction, say):
        with pytest.raises(OperationalError, match="database is locked"):
            write(connection, "x")
    holder.execute("ROLLBACK")
    holder.close()
    say(connection, "y")
    in_transaction(connection, "z")
    connection.close()
    assert words(path) == ["y", "z"]


def test_a_turn_ends_with_an_error_a_rollback_and_a_connection(path: Path) -> None:
    first, second = connected(path), connected(path, timeout_s=1)
    with pytest.raises(Exception, match="UNIQUE"):
        in_transaction(first, "a", "a")
    in_transaction(second, "b")
    first.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
    first.close()  # in the midst of a transaction
    in_transaction(second, "c")
    second.close()
    assert words(path) == ["b", "c"]


def test_atomic_of_the_product_takes_and_gives_turns() -> None:
    with transaction.atomic(), transaction.atomic():
        pass
    with transaction.atomic():
        pass


def test_a_thread_that_ends_within_a_transaction_leaves_its_turn(path: Path) -> None:
    def work() -> None:
        connection = connected(path)
        connection.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
        say(connection, "never")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    gc.collect()  # the connection, of which Django makes a cycle
    in_transaction(connected(path), "said")
    assert words(path) == ["said"]


def test_databases_have_turns_of_their_own(path: Path, tmp_path: Path) -> None:
    other = connected(tmp_path / "other.sqlite3")
    in_transaction(other)
    with other.cursor() as cursor:
        cursor.execute("CREATE TABLE said (word TEXT)")
    connection = connected(path)
    connection.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
    say(connection, "here")
    in_transaction(other, "there")
    connection.commit()
    assert words(path) == ["here"]
    assert words(tmp_path / "other.sqlite3") == ["there"]
