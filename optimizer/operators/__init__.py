"""Operators propose edits from evidence, without a language model.

Each is a function of what it is given and of a seed, so that a resumed search proposes the same.
To add one: write a module beside these, with a function from evidence to edits, and list it in
`registry`.
"""

from __future__ import annotations

from optimizer.operators.demonstrations import from_references, from_successes
from optimizer.operators.evidence import Evidence, Judgement, PublicCriterion, Step, Trace
from optimizer.operators.instructions import instruction_pool
from optimizer.operators.registry import OFFLINE, Operator, propose_offline

__all__ = [
    "OFFLINE",
    "Evidence",
    "Judgement",
    "Operator",
    "PublicCriterion",
    "Step",
    "Trace",
    "from_references",
    "from_successes",
    "instruction_pool",
    "propose_offline",
]
