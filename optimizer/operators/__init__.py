"""Operators propose edits from evidence, without a language model.

Each is a function of what it is given and of a seed, so that a resumed search proposes the same.
To add one: write a module beside these, with a function from evidence to edits, and list it here.
"""

from __future__ import annotations

from optimizer.operators.demonstrations import from_references, from_successes
from optimizer.operators.evidence import Evidence, Judgement, PublicCriterion, Step, Trace
from optimizer.operators.instructions import instruction_pool

__all__ = [
    "Evidence",
    "Judgement",
    "PublicCriterion",
    "Step",
    "Trace",
    "from_references",
    "from_successes",
    "instruction_pool",
]
