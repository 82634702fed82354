from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.canonical import unix_lines, unstorable
from optimizer.errors import HarnessInvalid
from optimizer.harness import (
    Demonstration,
    Harness,
    Limits,
    Pick,
    Picking,
    Sampling,
    diff,
    export_zip,
    import_zip,
    load_folder,
    save_folder,
)
from optimizer.skills import Skill
from tests.optimizer.build import SKILL, demonstration, harness

texts = st.text(max_size=30).filter(lambda text: not unstorable(text))
messages = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": texts})
demonstrations = st.builds(
    Demonstration,
    id=st.uuids().map(str),
    messages=st.lists(messages, min_size=1, max_size=3).map(tuple),
    source=texts,
)
skills = st.builds(
    Skill,
    name=st.from_regex(r"[a-z0-9]{1,8}(-[a-z0-9]{1,8})?", fullmatch=True),
    description=texts.filter(str.strip),
    body=texts.map(unix_lines),
)
harnesses = st.builds(
    Harness,
    instructions=texts.map(unix_lines),
    demonstrations=st.lists(demonstrations, max_size=3, unique_by=lambda item: item.id).map(tuple),
    skills=st.lists(skills, max_size=2, unique_by=lambda skill: skill.name).map(
        lambda items: tuple(sorted(items, key=lambda skill: skill.name))
    ),
    model=texts,
    sampling=st.builds(
        Sampling,
        temperature=st.floats(0, 2),
        max_tokens=st.integers(1, 999),
        stop=st.lists(texts.filter(bool), max_size=2).map(tuple),
    ),
    limits=st.builds(Limits, max_steps=st.integers(1, 99)),
    picking=st.builds(Picking, pick=st.sampled_from(Pick), k=st.integers(1, 9)),
)


@settings(max_examples=30)
@given(harnesses)
def test_components_describe_a_harness_completely(subject: Harness) -> None:
    again = Harness.from_components(subject.components())
    assert again == subject
    assert again.sha256 == subject.sha256
    assert import_zip(export_zip(subject)) == subject


def test_a_folder_is_written_and_read_with_the_same_address(tmp_path: Path) -> None:
    subject = harness(
        demonstrations=(demonstration(),),
        skills=(SKILL,),
        files={"skills/count-lines/references/wc.md": "wc counts.\n"},
        tools=({"name": "bash", "description": "Runs a command."},),
    )
    save_folder(subject, tmp_path / "h")
    (tmp_path / "h" / ".DS_Store").write_bytes(b"\xff")
    assert load_folder(tmp_path / "h").sha256 == subject.sha256
    with pytest.raises(HarnessInvalid, match="not empty"):
        save_folder(subject, tmp_path / "h")


def test_a_hand_written_folder_needs_only_what_differs(tmp_path: Path) -> None:
    (tmp_path / "instructions.md").write_text("Be brief.\n")
    (tmp_path / "harness.yaml").write_text("sampling:\n  stop: ['\\n']\n  max_tokens: 32\n")
    subject = load_folder(tmp_path)
    assert subject.sampling == Sampling(max_tokens=32, stop=("\\n",))
    assert subject.limits.max_steps == 8


def test_a_field_that_says_nothing_leaves_the_address_alone() -> None:
    assert "demonstrations:" not in harness().components()["harness.yaml"]
    nearest = harness(picking=Picking(Pick.NEAREST, 3))
    assert "demonstrations:\n  pick: nearest\n  k: 3\n" in nearest.components()["harness.yaml"]


def test_the_model_is_told_the_system_text_the_demonstrations_and_the_task() -> None:
    subject = harness(
        instructions="Be brief.\n", demonstrations=(demonstration(),), skills=(SKILL,)
    )
    told = subject.messages("How many?")
    assert told[0] == {
        "role": "system",
        "content": "Be brief.\n\nSkills (load one by name when it fits):\n"
        "- count-lines: Counts lines. Use when asked how many.",
    }
    assert [message["role"] for message in told[1:]] == ["user", "assistant"] * 2 + ["user"]
    assert told[-1] == {"role": "user", "content": "How many?"}


def test_how_to_load_a_skill_stands_above_the_skills() -> None:
    subject = harness(instructions="Be brief. {actions}", skills=(SKILL,))
    (system, _) = subject.messages("How many?", actions="Act.", loading="Skills, by a call:")
    assert system["content"] == (
        "Be brief. Act.\n\nSkills, by a call:\n"
        "- count-lines: Counts lines. Use when asked how many."
    )
    without = harness(instructions="Be brief.", demonstrations=(demonstration(),))
    assert without.messages("How many?", loading="Skills, by a call:", key="k") == (
        without.messages("How many?")
    )


def test_the_nearest_demonstrations_are_told_the_nearest_last() -> None:
    def shown(key: str, task: str, source: str = "") -> Demonstration:
        messages = ({"role": "user", "content": task}, {"role": "assistant", "content": "3"})
        return Demonstration(key, messages, source)

    subject = Harness(
        demonstrations=(
            shown("a", "How many lines are in a.txt?"),
            shown("b", "Name the capital of Norway."),
            shown("c", "In b.txt, how many lines are there?"),
            shown("own", "HOW MANY lines are in  b.txt?"),
            shown("by key", "How many lines are in c.txt?", source="t7"),
        ),
        picking=Picking(Pick.NEAREST, 2),
    )

    def told(key: str = "") -> list[str]:
        return [d.id for d in subject.demonstrations_for("How many lines are in b.txt?", key)]

    assert told("t7") == ["c", "a"]
    assert told() == ["a", "by key"]
    everything = replace(subject, picking=Picking())
    assert everything.demonstrations_for("How many lines are in b.txt?", "t7") == (
        subject.demonstrations
    )


def test_without_instructions_there_is_no_system_message() -> None:
    assert Harness().messages("hi") == [{"role": "user", "content": "hi"}]


def test_every_change_changes_the_address() -> None:
    subjects = [
        harness(),
        harness(instructions="x"),
        harness(demonstrations=(demonstration(),)),
        harness(demonstrations=(demonstration("a"), demonstration("b"))),
        harness(demonstrations=(demonstration("b"), demonstration("a"))),
        harness(skills=(SKILL,)),
        harness(limits=Limits(3)),
        harness(model="m"),
        harness(picking=Picking(Pick.NEAREST, 4)),
        harness(picking=Picking(Pick.NEAREST, 3)),
    ]
    assert len({subject.sha256 for subject in subjects}) == len(subjects)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"prompt.md": ""}, "prompt.md: not part of a harness; accepts harness.yaml"),
        ({"harness.yaml": "temperature: 1"}, "temperature is unknown; accepts model, sampling"),
        ({"harness.yaml": "sampling: {temperature: hot}"}, "sampling.temperature is 'hot'"),
        ({"harness.yaml": "sampling: {temperature: .nan}"}, "accepts numbers 0 to 2"),
        ({"harness.yaml": "limits: {max_steps: 1.5}"}, "accepts whole numbers 1 to"),
        ({"harness.yaml": "demonstrations: {pick: best}"}, "'best'; accepts all, nearest"),
        ({"harness.yaml": "demonstrations: {k: 0}"}, "demonstrations.k is 0; accepts whole"),
        ({"harness.yaml": "a: ["}, "not YAML"),
        ({"demonstrations.jsonl": "{"}, "demonstrations.jsonl line 1: not JSON"),
        ({"demonstrations.jsonl": '{"id": "a"}'}, "messages accepts a list"),
        ({"tools.json": "{}"}, "tools.json: accepts a list"),
        ({"skills/a/SKILL.md": "no frontmatter"}, "must begin with frontmatter"),
        ({"skills/a/SKILL.md": "---\nname: b\ndescription: x\n---\n"}, "must equal the folder"),
        ({"skills/A/SKILL.md": "---\nname: A\ndescription: x\n---\n"}, "accepts 1 to 64 lower"),
        ({"skills/a/SKILL.md": "---\nname: a\n---\n"}, "description is required"),
        ({"skills/a/SKILL.md": "---\nname: a\ndescription: x\nextra: 1\n---\n"}, "is unknown"),
        ({"skills/a/references/x.md": "text"}, "has no SKILL.md"),
    ],
)
def test_a_mistake_is_named(files: dict[str, str], message: str) -> None:
    with pytest.raises(HarnessInvalid, match=r".") as caught:
        Harness.from_components(files)
    assert message in str(caught.value)


def test_demonstrations_with_one_id_are_refused() -> None:
    line = demonstration().line()
    with pytest.raises(HarnessInvalid, match="used twice: d1"):
        Harness.from_components({"demonstrations.jsonl": f"{line}\n{line}\n"})


def test_an_archive_cannot_lead_outside() -> None:
    import io
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("../instructions.md", "x")
    with pytest.raises(HarnessInvalid, match="leads outside"):
        import_zip(buffer.getvalue())
    with pytest.raises(HarnessInvalid, match="not a zip"):
        import_zip(b"no")


def test_a_difference_is_told_by_component() -> None:
    before, after = harness(), harness(instructions="New.\n", demonstrations=(demonstration(),))
    found = {item.component: item for item in diff(before, after)}
    assert found["demonstrations.jsonl"].change == "added"
    assert "+New." in found["instructions.md"].lines
    assert diff(before, before) == []
