"""Tuning the descriptions of skills: measured, proposed, measured again.

The agent's model decides by the catalogue alone what it would load, in the words of a rollout.
Descriptions compete on the queries to tune on; the winner and the present one are then reported on
the others, which chose nothing. What a query showed is stored at once and not measured again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from optimizer.edits import Edit
from optimizer.errors import HarnessInvalid
from optimizer.reflection import (
    Mode,
    Reflection,
    Refused,
    Sifted,
    question,
    read_answer,
    schema,
    sift,
    triggers,
)
from optimizer.reflection.answer import storable
from optimizer.reflection.triggers import Query, Rate
from optimizer.seeds import derive
from optimizer.skills import Skill
from orchestrator.agents.endpoints import endpoint_of
from orchestrator.agents.errors import ModelError
from orchestrator.projects.secrets import derived_key
from orchestrator.proposing import evidence
from orchestrator.proposing.answering import Asking, NoAnswer
from orchestrator.proposing.calls import Line, Reply
from orchestrator.proposing.material import SECRET, Material, add_question, material_of, rules_of
from orchestrator.proposing.purse import Purse
from orchestrator.runs.skills import Shelf

MAX_DESCRIPTIONS = 4
"""Of one skill; each costs the runs of all queries to tune on."""
MAX_REPLY_TOKENS = 64
"""Of a decision."""
KIND_MEASURED, KIND_ASKED = "measured", "asked"


def tune(asking: Asking) -> tuple[str, Sifted]:
    """What was measured, in words, and the edits. Raises NoAnswer, ModelError, BudgetExceeded."""
    given = material_of(asking.proposal)
    skills = triggers.tunable(given.harness, given.terms.protected)
    if given.components:
        skills = [s for s in skills if f"skills/{s.name}/SKILL.md" in given.components]
    if not skills:
        return "No skill that may be changed has evals/triggers.json.", Sifted(())
    said: list[str] = []
    kept: list[Edit] = []
    refused: list[Refused] = []
    for skill in skills:
        sentence, found = _Tuning(asking, given, skill).run()
        said.append(sentence)
        kept += found.kept
        refused += found.refused
    return " ".join(said), Sifted(tuple(kept), tuple(refused))


@dataclass
class _Tuning:
    """Of one skill."""

    asking: Asking
    given: Material
    skill: Skill

    def run(self) -> tuple[str, Sifted]:
        name, current = self.skill.name, self.skill.description
        try:
            queries = triggers.queries_of(self.given.harness, name)
        except HarnessInvalid as why:
            return f"{why}.", Sifted(())
        tuning, held_out = triggers.halves(name, queries)
        before = self._loads(current, tuning)
        if triggers.rate(tuning, before).share == 1.0:
            rate = triggers.rate(tuning, before)
            return f"{name}: its description is right in {rate} decisions already.", Sifted(())
        sifted = self._proposed(triggers.told(tuning, before))
        rates = {current: triggers.rate(tuning, before)}
        for edit in sifted.kept:
            rates[edit.content] = triggers.rate(tuning, self._loads(edit.content, tuning))
        best = triggers.best(current, rates)
        if best == current:
            tried = len(rates) - 1
            return (
                f"{name}: none of {tried} descriptions is better than the present one, right in "
                f"{rates[current]} decisions.",
                Sifted((), sifted.refused),
            )
        gained = self._gained(tuning, current, best)
        edit = replace(
            triggers.description_edit(name, best),
            support=len(gained),
            sources=(),
        )
        return self._sentence(rates, held_out, best), Sifted((edit,), sifted.refused)

    def _gained(self, tuning: Sequence[Query], current: str, best: str) -> list[Query]:
        """Queries that are decided better than before: they stand behind the edit."""
        before, after = self._loads(current, tuning), self._loads(best, tuning)
        return [
            query
            for query in tuning
            if triggers.rate([query], after).right > triggers.rate([query], before).right
        ]

    def _sentence(self, rates: Mapping[str, Rate], held_out: Sequence[Query], best: str) -> str:
        current = self.skill.description
        said = (
            f"{self.skill.name}: right in {rates[best]} decisions on the queries it was chosen by, "
            f"before {rates[current]}"
        )
        if not held_out:
            return f"{said}; no query is left to report on."
        after = triggers.rate(held_out, self._loads(best, held_out))
        before = triggers.rate(held_out, self._loads(current, held_out))
        return f"{said}; on the others {after}, before {before}."

    # --- asking for descriptions

    def _proposed(self, told: Sequence[Mapping[str, Any]]) -> Sifted:
        """Descriptions that may be tried. A reply of no use is not asked for again: what the
        present description does is known all the same, and the next round may ask.
        """
        asking, given = self.asking, self.given
        component = f"skills/{self.skill.name}/SKILL.md"
        asked = Reflection(
            mode=Mode.TRIGGERS,
            harness=given.harness,
            components=(component,),
            max_edits=min(MAX_DESCRIPTIONS, given.terms.max_edits),
            queries=told,
            skill=self.skill.name,
        )
        text = self._reply_to(question(asked, secret=derived_key(SECRET)), schema(asked))
        read = read_answer(text, Mode.TRIGGERS)
        if not read.is_read:
            raise NoAnswer(f"{self.skill.name}: {read.problems[0]}.")
        return sift(
            read,
            given.harness,
            components=(component,),
            max_edits=asked.max_edits,
            graves=evidence.graves_of(asking.proposal.search),
            rules=rules_of(asking.proposal, given),
        )

    def _reply_to(self, text: str, form: Mapping[str, Any]) -> str:
        asking = self.asking
        for answer in asking.proposal.answers:
            if (answer.get("kind"), answer.get("skill")) == (KIND_ASKED, self.skill.name):
                return str(answer["text"])
        add_question(asking.proposal, text, fence=asking.ctx.fence)
        messages = [{"role": "user", "content": text}]
        key, most = f"{KIND_ASKED}/{self.skill.name}", asking.terms.max_tokens
        asking.set_aside(asking.purse, key, messages, form, most)
        line = asking.line()

        async def asked() -> Reply:
            async with line:
                return await line.complete(messages, max_tokens=most, schema=form)

        reply = asking.run(asked())
        told = {"kind": KIND_ASKED, "skill": self.skill.name, "text": storable(reply.text)}
        asking.keep(asking.purse, key, reply, {**told, "problem": ""})
        return reply.text

    # --- measuring

    def _loads(self, description: str, queries: Sequence[Query]) -> dict[str, list[bool]]:
        """By query; measured where that is not known yet."""
        return {query.text: self._load(description, query) for query in queries}

    def _load(self, description: str, query: Query) -> list[bool]:
        place = (KIND_MEASURED, self.skill.name, description, query.text)
        answers = self.asking.proposal.answers
        for answer in answers:
            known = tuple(answer.get(key) for key in ("kind", "skill", "description", "query"))
            if known == place:
                return list(answer["loaded"])
        agent = self.asking.proposal.search.model or self.asking.row
        purse, key = Purse(self.asking.proposal, agent), f"{KIND_MEASURED}/{len(answers)}"
        replies, loaded = self._decisions(description, query, purse, key)
        total = Reply(
            text="",
            tokens_in=sum(reply.tokens_in for reply in replies),
            tokens_out=sum(reply.tokens_out for reply in replies),
            seconds=sum(reply.seconds for reply in replies),
        )
        row = dict(zip(("kind", "skill", "description", "query"), place, strict=True))
        self.asking.keep(purse, key, total, {**row, "loaded": loaded, "text": "", "problem": ""})
        return loaded

    def _decisions(
        self, description: str, query: Query, purse: Purse, key: str
    ) -> tuple[list[Reply], list[bool]]:
        """One for each run, of the model that acts in rollouts."""
        asking, terms, agent = self.asking, self.given.terms, purse.row
        harness = triggers.catalogue_only(self.given.harness, self.skill.name, description)
        shelf = Shelf(harness, calls=bool(agent.supports_tools))
        messages = harness.messages(query.text, loading=shelf.loading)
        tools = [function.as_json() for function in shelf.functions]
        sent, most = messages * terms.runs, MAX_REPLY_TOKENS * terms.runs
        asking.set_aside(purse, key, sent, {"tools": tools * terms.runs}, most)
        line = Line(endpoint_of(agent), terms.patience_s, asking.clock)

        async def decided() -> list[Reply]:
            async with line, asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(
                        line.complete(
                            messages,
                            max_tokens=MAX_REPLY_TOKENS,
                            temperature=harness.sampling.temperature,
                            seed=derive(asking.proposal.search.seed, "trigger", query.text, run)
                            % 2**31,
                            tools=tools,
                        )
                    )
                    for run in range(terms.runs)
                ]
            return [task.result() for task in tasks]

        try:
            replies = asking.run(decided())
        except ExceptionGroup as failures:
            raise _first_of(failures) from failures
        return replies, [_has_loaded(shelf, reply, self.skill.name) for reply in replies]


def _first_of(failures: ExceptionGroup[Exception]) -> Exception:
    """Of several runs that fail alike one tells it."""
    told = failures.subgroup(ModelError)
    return (told or failures).exceptions[0]


def _has_loaded(shelf: Shelf, reply: Reply, skill: str) -> bool:
    asked = [shelf.asked_in_call(call) for call in reply.calls] or [shelf.asked_in_text(reply.text)]
    return any(item is not None and item.name == skill for item in asked)
