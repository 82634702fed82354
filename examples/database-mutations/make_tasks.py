"""Writes `tasks.jsonl`, ten families of changes to a shop's database, 8 of each, from a seed; and
the harness's demonstrations.

    .venv/bin/python examples/database-mutations/make_tasks.py

Each task is drawn with the change in three forms: words, SQL, and the same done to the rows in
Python. The SQL is executed by the environment's own engine on the tables of `environment.yaml`, and
the state that it leaves must be the one that Python computed, or nothing is written. Train tasks
carry the SQL as their author's transcript, with what the database really answered.
"""

from __future__ import annotations

import copy
import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from orchestrator.environments.sql.observation import segments_of
from orchestrator.environments.sql.sqlite import SqliteEngine
from orchestrator.environments.sql.state import same_rows, state_of
from orchestrator.environments.sql.tasks import SqlTask

SEED = 5
PER_FAMILY = {"train": 4, "select": 2, "test": 2}
MAX_STEPS = 4
DEMONSTRATIONS = 4
COLUMNS = {
    "people": ("id", "name", "city", "balance"),
    "products": ("id", "name", "price", "stock"),
    "orders": ("id", "person_id", "product_id", "status"),
}
CONFIG = yaml.safe_load(Path(__file__).with_name("environment.yaml").read_text("utf-8"))
SAID = {"description": CONFIG["description"], "schema": CONFIG["source"]["schema"].strip()}
NAMES = ("Ann", "Bob", "Eva", "Ian", "Lea", "Max", "Mia", "Tom", "Zoe")
CITIES = ("Rome", "Paris", "Oslo", "Berlin", "Madrid", "London")
PRODUCTS = ("lamp", "chair", "table", "book", "cup", "clock", "coat", "pen")
STATUSES = ("open", "paid", "sent")

Rows = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Change:
    """The same change three times."""

    words: str
    sql: str
    apply: Callable[[Rows], None]


def shop(rng: random.Random) -> Rows:
    """Three to five people and products, four to six orders."""
    names = rng.sample(NAMES, rng.randint(3, 5))
    products = rng.sample(PRODUCTS, rng.randint(3, 5))
    return {
        "people": [
            {"id": i, "name": n, "city": rng.choice(CITIES), "balance": 10 * rng.randint(5, 20)}
            for i, n in enumerate(names, start=1)
        ],
        "products": [
            {"id": i, "name": n, "price": rng.randint(2, 40), "stock": rng.randint(0, 9)}
            for i, n in enumerate(products, start=1)
        ],
        "orders": [
            {
                "id": i,
                "person_id": rng.randint(1, len(names)),
                "product_id": rng.randint(1, len(products)),
                "status": rng.choice(STATUSES),
            }
            for i in range(1, rng.randint(5, 7))
        ],
    }


def add_person(rng: random.Random, rows: Rows) -> Change:
    name = rng.choice([n for n in NAMES if n not in {p["name"] for p in rows["people"]}])
    person = {
        "id": len(rows["people"]) + 1,
        "name": name,
        "city": rng.choice(CITIES),
        "balance": 10 * rng.randint(1, 9),
    }
    return Change(
        f"Add a person with id {person['id']}: {name} from {person['city']}, balance "
        f"{person['balance']}.",
        f"INSERT INTO people VALUES ({person['id']}, '{name}', '{person['city']}', "
        f"{person['balance']});",
        lambda r: r["people"].append(person),
    )


def move_person(rng: random.Random, rows: Rows) -> Change:
    person = rng.choice(rows["people"])
    city = rng.choice([c for c in CITIES if c != person["city"]])
    return Change(
        f"{person['name']} has moved to {city}.",
        f"UPDATE people SET city = '{city}' WHERE name = '{person['name']}';",
        lambda r: change(r["people"], lambda p: p["name"] == person["name"], city=city),
    )


def raise_prices(rng: random.Random, rows: Rows) -> Change:
    limit, by = rng.choice(rows["products"])["price"] + 1, rng.randint(1, 5)

    def apply(r: Rows) -> None:
        for product in r["products"]:
            if product["price"] < limit:
                product["price"] += by

    return Change(
        f"Raise the price of all products cheaper than {limit} by {by}.",
        f"UPDATE products SET price = price + {by} WHERE price < {limit};",
        apply,
    )


def delete_status(rng: random.Random, rows: Rows) -> Change:
    status = rng.choice(sorted({order["status"] for order in rows["orders"]}))
    return Change(
        f"Delete all orders with status {status}.",
        f"DELETE FROM orders WHERE status = '{status}';",
        lambda r: keep(r, "orders", lambda o: o["status"] != status),
    )


def cancel_orders(rng: random.Random, rows: Rows) -> Change:
    person = person_with_orders(rng, rows)
    return Change(
        f"Delete all orders of {person['name']}.",
        "DELETE FROM orders WHERE person_id = (SELECT id FROM people WHERE name = "
        f"'{person['name']}');",
        lambda r: keep(r, "orders", lambda o: o["person_id"] != person["id"]),
    )


def pay_orders(rng: random.Random, rows: Rows) -> Change:
    person = person_with_orders(rng, rows)
    status = rng.choice(("returned", "lost", "packed"))
    return Change(
        f"Set the status of all orders of {person['name']} to {status}.",
        f"UPDATE orders SET status = '{status}' WHERE person_id = (SELECT id FROM people WHERE "
        f"name = '{person['name']}');",
        lambda r: change(r["orders"], lambda o: o["person_id"] == person["id"], status=status),
    )


def transfer(rng: random.Random, rows: Rows) -> Change:
    giver, taker = rng.sample(rows["people"], 2)
    amount = 10 * rng.randint(1, 4)

    def apply(r: Rows) -> None:
        for person in r["people"]:
            if person["id"] == giver["id"]:
                person["balance"] -= amount
            if person["id"] == taker["id"]:
                person["balance"] += amount

    return Change(
        f"Move {amount} from the balance of {giver['name']} to that of {taker['name']}, in one "
        "transaction.",
        f"BEGIN; UPDATE people SET balance = balance - {amount} WHERE name = '{giver['name']}'; "
        f"UPDATE people SET balance = balance + {amount} WHERE name = '{taker['name']}'; COMMIT;",
        apply,
    )


def order_product(rng: random.Random, rows: Rows) -> Change:
    person, product = rng.choice(rows["people"]), rng.choice(rows["products"])
    number = len(rows["orders"]) + 1
    order = {
        "id": number,
        "person_id": person["id"],
        "product_id": product["id"],
        "status": "open",
    }
    return Change(
        f"Add an open order with id {number}: {person['name']} orders a {product['name']}.",
        f"INSERT INTO orders SELECT {number}, people.id, products.id, 'open' FROM people, products "
        f"WHERE people.name = '{person['name']}' AND products.name = '{product['name']}';",
        lambda r: r["orders"].append(order),
    )


def drop_unsold(rng: random.Random, rows: Rows) -> Change:
    ordered = {order["product_id"] for order in rows["orders"]}
    return Change(
        "Delete all products that nobody has ordered.",
        "DELETE FROM products WHERE id NOT IN (SELECT product_id FROM orders);",
        lambda r: keep(r, "products", lambda p: p["id"] in ordered),
    )


def restock(rng: random.Random, rows: Rows) -> Change:
    product, more = rng.choice(rows["products"]), rng.randint(2, 9)
    stock = product["stock"] + more
    return Change(
        f"{more} more of the product {product['name']} have arrived: add them to the stock.",
        f"UPDATE products SET stock = stock + {more} WHERE name = '{product['name']}';",
        lambda r: change(r["products"], lambda p: p["id"] == product["id"], stock=stock),
    )


def change(rows: list[dict[str, Any]], which: Callable[[Any], bool], **values: Any) -> None:
    for row in rows:
        if which(row):
            row.update(values)


def keep(rows: Rows, table: str, which: Callable[[Any], bool]) -> None:
    rows[table] = [row for row in rows[table] if which(row)]


def person_with_orders(rng: random.Random, rows: Rows) -> dict[str, Any]:
    buyers = {order["person_id"] for order in rows["orders"]}
    return dict(rng.choice([person for person in rows["people"] if person["id"] in buyers]))


FAMILIES: dict[str, Callable[[random.Random, Rows], Change]] = {
    "update-one": move_person,
    "insert": add_person,
    "delete": delete_status,
    "update-many": raise_prices,
    "update-sum": restock,
    "delete-join": cancel_orders,
    "update-join": pay_orders,
    "transaction": transfer,
    "insert-select": order_product,
    "delete-not-in": drop_unsold,
}


def tasks(seed: int = SEED) -> list[dict[str, Any]]:
    """Families alternate, so that every prefix of a split is balanced. Executes each solution."""
    engine = SqliteEngine()
    found: list[dict[str, Any]] = []
    try:
        for split, count in PER_FAMILY.items():
            for index in range(count * len(FAMILIES)):
                family = list(FAMILIES)[index % len(FAMILIES)]
                found.append(_task(engine, seed, split, index, family))
    finally:
        engine.close()
    return found


def _task(engine: SqliteEngine, seed: int, split: str, index: int, family: str) -> dict[str, Any]:
    """A drawn change that changes something, once its SQL has been found to do it."""
    for attempt in range(100):
        rng = random.Random(f"{seed}/{split}/{index}/{attempt}")
        rows = shop(rng)
        drawn = FAMILIES[family](rng, rows)
        after = copy.deepcopy(rows)
        drawn.apply(after)
        if after != rows:
            break
    task: dict[str, Any] = {
        "key": f"{split}-{index + 1:02d}",
        "split": split,
        "group": family,
        "prompt": drawn.words,
        "rows": {table: [list(row.values()) for row in listed] for table, listed in rows.items()},
        "solution": drawn.sql,
        "max_steps": MAX_STEPS,
    }
    reply = _verified(engine, task, after)
    if split == "train":
        task["reference"] = [
            {"role": "assistant", "content": drawn.sql},
            {"role": "user", "content": reply},
            {"role": "assistant", "content": "done"},
        ]
    return task


def _verified(engine: SqliteEngine, task: dict[str, Any], after: Rows) -> str:
    """What the database answers. `RuntimeError` if its state is not what Python computed."""
    names = ("key", "prompt", "rows", "solution", "max_steps")
    spec = {"schema": SAID["schema"], **{name: task[name] for name in names}}
    prepared = engine.prepare(SqlTask.from_json(spec))
    wanted = state_of(
        {
            table: {"columns": COLUMNS[table], "rows": [list(row.values()) for row in listed]}
            for table, listed in after.items()
        }
    )
    assert prepared.expected is not None
    for table, goal in wanted.items():
        if not same_rows(goal.rows, prepared.expected[table].rows, tolerance=0):
            raise RuntimeError(f"{task['key']}: {task['solution']} leaves another state in {table}")
    database = engine.open(prepared)
    try:
        reply = database.run(task["solution"])
    finally:
        database.close()
    segments = segments_of(reply.results, in_transaction=reply.in_transaction)
    return "".join(segment["text"] for segment in segments)


def demonstrations(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the simplest families: the first train tasks, posed as an agent reads them."""
    said = "{description}\n\n{words}\n\n{schema}".format
    return [
        {
            "id": f"author-{task['key']}",
            "messages": [
                {"role": "user", "content": said(words=task["prompt"], **SAID)},
                *task["reference"],
            ],
            "source": task["key"],
        }
        for task in found[:DEMONSTRATIONS]
    ]


def write(path: Path, records: list[dict[str, Any]]) -> None:
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    path.write_text("".join(lines), encoding="utf-8")


def main() -> None:
    folder = Path(__file__).parent
    found = tasks()
    write(folder / "tasks.jsonl", found)
    write(folder / "harness" / "demonstrations.jsonl", demonstrations(found))


if __name__ == "__main__":
    main()
