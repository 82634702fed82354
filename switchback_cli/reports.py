"""What a CI system reads of a gate: JUnit XML, a Markdown comment, one line. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

Told = Mapping[str, Any]
CLAIMS = {
    "better": "better",
    "regressed": "regressed",
    "inconclusive": "inconclusive",
    "infrastructure": "not decided: infrastructure",
}
MARK = "<!-- switchback-gate{} -->"
"""First in a comment, so that the next one can take its place."""


def claim(gate: Told) -> str:
    """One line: `better: +12.5 points [3.0, 21.5], 96 pairs`."""
    word = CLAIMS.get(gate["verdict"], str(gate["state"]))
    decision = gate["decision"]
    if not decision or decision["mean"] is None or gate["verdict"] == "infrastructure":
        return word
    return (
        f"{word}: {points(decision['mean'])} points {interval(decision)}, "
        f"{decision['pairs']} pairs on {decision['tasks']} tasks"
    )


def points(share: float) -> str:
    text = f"{100 * share:+.1f}"
    return "±0.0" if float(text) == 0 else text.replace("-", "−")


def interval(decision: Told) -> str:
    if decision["low"] is None:
        return ""
    low, high = (f"{100 * decision[end]:.1f}".replace("-", "−") for end in ("low", "high"))
    return f"[{low}, {high}]"


def wants(gate: Told) -> str:
    """How much more would decide; empty where nothing is to say."""
    needs = (gate["decision"] or {}).get("needs") or {}
    if gate["verdict"] != "inconclusive":
        return ""
    if needs.get("more_rollouts"):
        return f"About {needs['more_rollouts']:,} more rollouts on these tasks would decide it."
    if needs.get("more_tasks"):
        return f"About {needs['more_tasks']:,} more tasks would decide it; more repeats cannot."
    return ""


def markdown(gate: Told, *, label: str = "") -> str:
    """A comment on a pull request. `label` tells several gates of one request apart."""
    decision = gate["decision"] or {}
    candidate, baseline = gate["candidate"]["sha256"][:8], gate["baseline"]["sha256"][:8]
    lines = [
        _mark(label),
        f"### Switchback: {_plain(claim(gate))}",
        "",
        *([_plain(gate["sentence"]), ""] if gate["sentence"] else []),
        *([wants(gate), ""] if wants(gate) else []),
        "| | baseline | change |",
        "|---|---|---|",
        f"| harness | `{baseline}` | `{candidate}` |",
        f"| model | {_plain(gate['baseline_model']['name'])} "
        f"| {_plain(gate['candidate_model']['name'])} |",
        f"| mean | {_score(decision.get('base_mean'))} "
        f"| {_score(decision.get('candidate_mean'))} |",
        f"| rollouts without a score | {decision.get('lost_base', '–')} "
        f"| {decision.get('lost_candidate', '–')} |",
        "",
        f"{gate['n_tasks']} tasks of {gate['split']} in {_plain(gate['environment']['name'])} "
        f"v{gate['environment']['version']}, graded by {_plain(gate['rubric']['name'])} "
        f"v{gate['rubric']['version']}; {gate['spent']['rollouts']:,} of at most "
        f"{gate['spent']['most_rollouts']:,} rollouts, α {gate['policy']['alpha']:g}. "
        f"[All looks]({gate['html_url']})",
    ]
    return "\n".join(lines) + "\n"


def failed_markdown(text: str, *, label: str = "") -> str:
    """The comment of a gate that could not be asked for or did not answer."""
    return f"{_mark(label)}\n### Switchback: not decided: infrastructure\n\n{_plain(text)}\n"


def junit(gate: Told, *, accepted: bool) -> str:
    """A suite of one case; what is accepted passes, what is not decided is an error."""
    said = "\n".join(filter(None, (gate["sentence"], wants(gate), gate["html_url"])))
    verdict = gate["verdict"] or gate["state"]
    fault = None
    if not accepted:
        fault = "error" if verdict in ("infrastructure", "cancelled") else "failure"
    return _suite(gate["name"], fault, verdict, claim(gate), said)


def failed_junit(name: str, text: str) -> str:
    return _suite(name, "error", "infrastructure", text.partition("\n")[0], text)


def _suite(name: str, fault: str | None, kind: str, message: str, text: str) -> str:
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name="switchback",
        tests="1",
        failures=str(int(fault == "failure")),
        errors=str(int(fault == "error")),
    )
    case = ElementTree.SubElement(suite, "testcase", classname="switchback.gate", name=_xml(name))
    if fault is not None:
        found = ElementTree.SubElement(case, fault, message=_xml(message), type=kind)
        found.text = _xml(text)
    ElementTree.SubElement(case, "system-out").text = _xml(f"{message}\n{text}")
    ElementTree.indent(root)
    written: str = ElementTree.tostring(root, encoding="unicode", xml_declaration=True)
    return written + "\n"


def _mark(label: str) -> str:
    return MARK.format(f" {_plain(label)}" if label else "")


def _score(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _plain(text: str) -> str:
    """On one line, without what Markdown and HTML would act on."""
    for sign in "\\`*_{}[]<>|#":
        text = text.replace(sign, f"\\{sign}" if sign != "<" else "&lt;")
    return " ".join(text.split())


def _xml(text: str) -> str:
    """XML has no word for control characters and lone surrogates."""
    return "".join(
        sign if sign in "\n\t" or (sign >= " " and not "\ud800" <= sign <= "\udfff") else "�"
        for sign in text
    )
