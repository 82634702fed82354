"""Writes `tasks.jsonl`, six families of invoices, 10 of each, from a seed; and the harness's
demonstrations.

    .venv/bin/python examples/invoices/make_tasks.py

Each task has a small company of its own: the invoice with its contract and order, and others beside
them. The answer is computed from the records, not from what was drawn. Train tasks carry their
author's transcript: its calls are read as an agent's text and executed by the functions of
`environment.yaml`, and its decision must be the answer, or nothing is written.
"""

from __future__ import annotations

import json
import random
import sys
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from orchestrator.environments.kinds.acting import Tool, ToolInterface
from orchestrator.environments.kinds.foreign import tool_segment
from orchestrator.environments.tools.checks import is_equal
from orchestrator.environments.tools.functions import FunctionTools

SEED = 11
PER_FAMILY = {"train": 4, "select": 3, "test": 3}
FAMILIES = ("approve", "price", "quantity", "expired", "vendor", "duplicate")
DEMONSTRATIONS = 2
MAX_CALLS = 10
FOLDER = Path(__file__).parent
SOURCE = yaml.safe_load((FOLDER / "environment.yaml").read_text("utf-8"))["source"]
VENDORS = ("Adler", "Birch", "Corvin", "Dahl", "Elm", "Falk", "Grove", "Holm")
ITEMS = ("bolts", "cable", "filters", "gloves", "hinges", "lamps", "paper", "pipes", "valves")

Records = dict[str, Any]


def company(rng: random.Random, family: str) -> tuple[str, Records]:
    """The number of the invoice in question, and all records."""
    numbers = rng.sample(range(100, 1000), 12)
    state: Records = {"invoices": {}, "contracts": {}, "orders": {}, "payments": []}
    vendors = rng.sample(VENDORS, 3)
    asked = ""
    for place, vendor in enumerate(vendors):
        kind = family if place == 0 else rng.choice(("approve", "approve", "price"))
        taken = numbers[4 * place : 4 * place + 4]
        other = vendors[(place + 1) % len(vendors)]
        number = business(rng, state, kind, vendor, other, taken)
        asked = asked or number
    # Servers show records with their keys in order, so the transcripts do.
    return asked, json.loads(json.dumps(state, sort_keys=True))


def business(
    rng: random.Random, state: Records, family: str, vendor: str, other: str, numbers: list[int]
) -> str:
    """One contract with an order and its invoice; the invoice's number."""
    contract_id, order_id = f"C-{numbers[0]}", f"PO-{numbers[1]}"
    invoice_id, paid_id = f"INV-{numbers[2]}", f"INV-{numbers[3]}"
    start = date(2025, 1, 1) + timedelta(days=rng.randint(0, 300))
    end = start + timedelta(days=rng.randint(90, 360))
    items = rng.sample(ITEMS, rng.randint(1, 3))
    prices = {item: rng.randint(4, 160) / 4 for item in items}
    ordered = {item: rng.randint(2, 20) for item in items}
    day = start + timedelta(days=rng.randint(5, (end - start).days - 5))
    billed_prices, billed = dict(prices), dict(ordered)
    wrong = rng.choice(items)
    if family == "price":
        billed_prices[wrong] += rng.choice((0.25, 0.5, 1, 2.5, 10))
    elif family == "quantity":
        billed[wrong] += rng.randint(1, 5)
    elif family == "expired":
        day = end + timedelta(days=rng.randint(1, 60))
    elif family == "duplicate":
        amount = _total(prices, ordered)
        state["payments"].append({"order": order_id, "invoice": paid_id, "amount": amount})
    state["contracts"][contract_id] = {
        "vendor": vendor,
        "from": str(start),
        "to": str(end),
        "prices": prices,
    }
    state["orders"][order_id] = {"vendor": vendor, "quantities": ordered}
    state["invoices"][invoice_id] = {
        "vendor": other if family == "vendor" else vendor,
        "date": str(day),
        "contract": contract_id,
        "order": order_id,
        "lines": [
            {"item": item, "quantity": billed[item], "unit_price": billed_prices[item]}
            for item in items
        ],
        "total": _total(billed_prices, billed),
    }
    return invoice_id


def decide(state: Records, invoice_id: str) -> dict[str, Any]:
    """The answer, by the rules that the description tells."""
    invoice = state["invoices"][invoice_id]
    contract, order = state["contracts"][invoice["contract"]], state["orders"][invoice["order"]]
    is_paid = any(payment["order"] == invoice["order"] for payment in state["payments"])
    is_valid = contract["from"] <= invoice["date"] <= contract["to"]
    if is_paid or not is_valid or invoice["vendor"] != contract["vendor"]:
        return {"decision": "reject", "amount": 0}
    right = _total(contract["prices"], order["quantities"])
    decision = "approve" if right == invoice["total"] else "mismatch"
    return {"decision": decision, "amount": right}


def play(state: Records, invoice_id: str, answer: dict[str, Any]) -> list[dict[str, str]]:
    """The author's transcript, executed. `RuntimeError` if it does not end with the answer."""
    tools = FunctionTools(SOURCE["functions"], state, 5.0)
    submit = Tool("submit", "", {"type": "object", **SOURCE["answer_schema"]})
    interface = ToolInterface([*(Tool.from_listed(t.as_json()) for t in tools.tools()), submit])
    invoice = state["invoices"][invoice_id]
    lines = [
        f"get_invoice id={invoice_id}",
        f"get_contract id={invoice['contract']}",
        f"get_order id={invoice['order']}",
        f"list_payments order={invoice['order']}",
    ]
    messages = []
    for line in lines:
        name, arguments = _read(interface, line)
        outcome = tools.call(name, arguments)
        if outcome.error is not None:
            raise RuntimeError(f"{line}: {outcome.error}")
        messages += [_said("assistant", line), _said("user", tool_segment(vars(outcome))["text"])]
    last = f"submit decision={answer['decision']} amount={answer['amount']:g}"
    if _read(interface, last)[0] != "submit" or not is_equal(answer, _read(interface, last)[1]):
        raise RuntimeError(f"{invoice_id}: {last} is not {answer}")
    return [*messages, _said("assistant", last)]


def _read(interface: ToolInterface, line: str) -> tuple[str, dict[str, Any]]:
    """Tool and arguments of a line as an agent would write it."""
    action = interface.read(line)
    if isinstance(action, str):
        raise RuntimeError(f"{line}: is no call")
    return action["tool_name"], action["arguments"]


def make() -> list[dict[str, Any]]:
    tasks = []
    seen = set()
    for split, n in PER_FAMILY.items():
        for index in range(n * len(FAMILIES)):
            family = FAMILIES[index % len(FAMILIES)]
            rng = random.Random(f"{SEED}/{split}/{index}")
            invoice_id, state = company(rng, family)
            answer = decide(state, invoice_id)
            expected = {"price": "mismatch", "quantity": "mismatch", "approve": "approve"}
            if answer["decision"] != expected.get(family, "reject"):
                raise RuntimeError(f"{split} {index}: {family} is decided {answer}")
            task: dict[str, Any] = {
                "key": f"{split}-{index + 1:02d}",
                "split": split,
                "group": family,
                "prompt": f"Invoice {invoice_id}.",
                "state": state,
                "answer": answer,
                "tolerance": 0.005,
                "max_calls": MAX_CALLS,
            }
            if split == "train":
                task["reference"] = play(state, invoice_id, answer)
            seen.add(json.dumps([state, invoice_id]))
            tasks.append(task)
    if len(seen) != len(tasks):
        raise RuntimeError("two tasks are the same")
    return tasks


def demonstrations(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first train tasks of different decisions."""
    chosen: dict[str, dict[str, Any]] = {}
    for task in tasks:
        if task["split"] == "train":
            chosen.setdefault(task["answer"]["decision"], task)
    return [
        {
            "id": task["key"],
            "messages": [_said("user", task["prompt"]), *task["reference"]],
            "source": task["key"],
        }
        for task in list(chosen.values())[:DEMONSTRATIONS]
    ]


def _total(prices: dict[str, float], quantities: dict[str, int]) -> float:
    return round(sum(prices[item] * n for item, n in quantities.items()), 2)


def _said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _write(path: Path, records: list[dict[str, Any]]) -> None:
    lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    path.write_text("".join(lines), encoding="utf-8")


def main() -> None:
    tasks = make()
    _write(FOLDER / "tasks.jsonl", tasks)
    _write(FOLDER / "harness" / "demonstrations.jsonl", demonstrations(tasks))
    print(f"{len(tasks)} tasks written")


if __name__ == "__main__":
    main()
