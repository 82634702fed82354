"""Reflection: what a model, a person or an agent is asked when edits are wanted, and what its
answer says.

    evidence    which traces are shown, and how much of each
    question    the words around them, the frame of the data, the form of the answer
    answer      from a reply to typed edits: tolerant of form, never guessing
    sifting     which of these edits may be tried, and why the others may not
    triggers    the description of a skill, tuned by what makes an agent load it

Pure: nobody is asked here. A reflector is believed in nothing; what it proposes is measured as any
other edit is.
"""

from __future__ import annotations

from optimizer.reflection.answer import Answer, read_answer
from optimizer.reflection.evidence import chosen, shown
from optimizer.reflection.modes import Mode
from optimizer.reflection.question import Reflection, question, schema
from optimizer.reflection.sifting import Grave, Refused, Sifted, sift

__all__ = [
    "Answer",
    "Grave",
    "Mode",
    "Reflection",
    "Refused",
    "Sifted",
    "chosen",
    "question",
    "read_answer",
    "schema",
    "shown",
    "sift",
]
