"""Everything that a page can do has an address in the API, or a line that says why not."""

from __future__ import annotations

from pathlib import Path

from tests.access.peers import PEERS
from tests.access.rules import OPEN, RULES
from tests.access.table import addresses

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "rest.md"


def test_every_form_of_a_page_has_its_peer() -> None:
    forms = {name for name in RULES["POST"] if name.startswith("web:")} - OPEN
    assert forms - PEERS.keys() == set(), "add its address in the API to tests/access/peers.py"
    assert PEERS.keys() - forms == set(), "no such form any more"


def test_every_peer_changes_something() -> None:
    there = {address.name for address in addresses()}
    changing = {name for method in ("POST", "PUT", "PATCH", "DELETE") for name in RULES[method]}
    told = REFERENCE.read_text(encoding="utf-8")
    for form, peers in PEERS.items():
        if not peers.startswith("api:"):
            assert peers in told, f"{form}: the reference does not say why it has no address"
            continue
        for name in peers.split():
            assert name in there, f"{form}: {name} is no address"
            assert name in changing | OPEN, f"{form}: {name} changes nothing"
