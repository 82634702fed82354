"""Tokens in and out of the chat template, with a kind for every token.

Owns: the tokenizer of a prepared model folder, its chat template, and the *bridge*, the tokens
that lie between one sampled action and the next. Knows nothing of torch or HTTP.

Invariants
- Sampled tokens are never produced here. A conversation grows by concatenation: prompt ids,
  sampled ids, bridge ids, … (`reference/training.md` section 8, "tokens in, tokens out").
- Template parts and contents are tokenised separately, contents with special tokens switched off.
  So the kind of every token is exact, and text from an environment that spells `<|im_end|>`
  cannot close a turn. The price: a content that *begins* with white space may split differently
  from tokenising the rendered string as a whole.
- The segments of one bridge turn are tokenised as one string, so that rendering the whole
  conversation gives the same ids. A token that reaches over the border of two segments takes the
  kind `scaffold`, hence is never trained on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from training.types import TokenKind

CONTEXT = TokenKind.CONTEXT.value
SCAFFOLD = TokenKind.SCAFFOLD.value
BRIDGE_KINDS = frozenset({CONTEXT, TokenKind.ENV_OUTPUT.value, TokenKind.WARNING.value, SCAFFOLD})

# Private-use characters that no template contains; they mark where a content begins and ends in
# the rendered text.
_OPEN, _CLOSE = "\ue0f0", "\ue0f1"


class TemplateMismatch(ValueError):
    """The chat template does not keep contents verbatim, or does not allow this sequence of
    turns."""


@dataclass(frozen=True)
class Segment:
    """A piece of an observation."""

    kind: str
    "One of BRIDGE_KINDS."
    text: str


@dataclass(frozen=True)
class TokenSpans:
    """Token ids and, of equal length, their kinds."""

    ids: list[int]
    kinds: list[str]


class ChatTokenizer:
    """The tokenizer of one model. Encoding is thread-safe."""

    def __init__(
        self, tokenizer: Tokenizer, *, chat_template: str, eos_token: str, bos_token: str = ""
    ) -> None:
        self._plain = tokenizer
        self._special = Tokenizer.from_str(tokenizer.to_str())
        self._plain.encode_special_tokens = True
        self._special.encode_special_tokens = False
        self.eos_token = eos_token
        self.bos_token = bos_token
        eos_id = tokenizer.token_to_id(eos_token)
        if eos_id is None:
            raise ValueError(f"the tokenizer has no token {eos_token!r}")
        self.eos_id: int = eos_id
        self.vocab_size: int = tokenizer.get_vocab_size()
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _raise_exception
        self._template = environment.from_string(chat_template)

    @classmethod
    def from_folder(cls, folder: Path) -> ChatTokenizer:
        """Reads `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja` (or the
        config's template)."""
        settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        template_path = folder / "chat_template.jinja"
        if template_path.exists():
            template = template_path.read_text(encoding="utf-8")
        else:
            template = settings["chat_template"]
        return cls(
            Tokenizer.from_file(str(folder / "tokenizer.json")),
            chat_template=template,
            eos_token=_token_text(settings["eos_token"]),
            bos_token=_token_text(settings.get("bos_token") or ""),
        )

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of a text; names of special tokens are ordinary text unless `special`."""
        tokenizer = self._special if special else self._plain
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Text of the ids; bytes that are no valid UTF-8 become the replacement character."""
        text: str = self._special.decode(list(ids), skip_special_tokens=skip_special)
        return text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The text of each id by itself; half of a character becomes the replacement character."""
        texts: list[str] = self._special.decode_batch(
            [[token] for token in ids], skip_special_tokens=False
        )
        return texts

    def render(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True
    ) -> str:
        """The text that the model's own template makes of the messages."""
        try:
            return self._template.render(
                messages=list(messages),
                add_generation_prompt=add_generation_prompt,
                bos_token=self.bos_token,
                eos_token=self.eos_token,
            )
        except TemplateError as error:
            raise TemplateMismatch(f"the chat template refuses these messages: {error}") from error

    def encode_messages(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True
    ) -> TokenSpans:
        """Tokens of a conversation: contents are `context`, everything that the template adds is
        `scaffold`."""
        marked = [
            {**message, "content": f"{_OPEN}{_clean(message['content'])}{_CLOSE}"}
            for message in messages
        ]
        text = self.render(marked, add_generation_prompt=add_generation_prompt)
        ids: list[int] = []
        kinds: list[str] = []
        found = 0
        head, *parts = text.split(_OPEN)
        self._append(ids, kinds, head, SCAFFOLD)
        for part in parts:
            content, separator, scaffold = part.partition(_CLOSE)
            if not separator:
                raise TemplateMismatch("the chat template cuts or trims message contents")
            found += 1
            self._append(ids, kinds, content, CONTEXT)
            self._append(ids, kinds, scaffold, SCAFFOLD)
        if found != len(messages):
            raise TemplateMismatch(f"the chat template shows {found} of {len(messages)} messages")
        return TokenSpans(ids, kinds)

    def encode_bridge(
        self, segments: Sequence[Segment], *, sampled_eos: bool, role: str = "user"
    ) -> TokenSpans:
        """Tokens that follow a sampled action: close its turn, a turn with the segments, open the
        next action.

        `sampled_eos`: the action's last token is the end-of-turn token, so it is not written
        again.
        """
        before, after = self._turn_borders(role)
        if sampled_eos:
            if not before.startswith(self.eos_token):
                raise TemplateMismatch("the chat template does not end a turn by the EOS token")
            before = before[len(self.eos_token) :]
        ids: list[int] = []
        kinds: list[str] = []
        self._append(ids, kinds, before, SCAFFOLD)
        text = "".join(_clean(segment.text) for segment in segments)
        encoding = self._plain.encode(text, add_special_tokens=False)
        ids.extend(encoding.ids)
        kinds.extend(_kinds_by_offset(encoding.offsets, segments))
        self._append(ids, kinds, after, SCAFFOLD)
        return TokenSpans(ids, kinds)

    def _turn_borders(self, role: str) -> tuple[str, str]:
        """Template text between an action and the next turn's content, and after that content."""
        conversation = [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "u"},
            {"role": "assistant", "content": f"{_OPEN}{_CLOSE}"},
            {"role": role, "content": f"{_OPEN}{_CLOSE}"},
        ]
        parts = self.render(conversation, add_generation_prompt=True).split(f"{_OPEN}{_CLOSE}")
        if len(parts) != 3:
            raise TemplateMismatch("the chat template does not keep an action and its observation")
        return parts[1], parts[2]

    def _append(self, ids: list[int], kinds: list[str], text: str, kind: str) -> None:
        new = self.encode(text, special=kind == SCAFFOLD)
        ids.extend(new)
        kinds.extend([kind] * len(new))


def _kinds_by_offset(offsets: Sequence[tuple[int, int]], segments: Sequence[Segment]) -> list[str]:
    """Kind of each token by its character span [start, end) in the concatenated segments."""
    ends: list[tuple[int, str]] = []
    position = 0
    for segment in segments:
        position += len(_clean(segment.text))
        ends.append((position, segment.kind))
    kinds = []
    index = 0
    for start, end in offsets:
        while index < len(ends) - 1 and start >= ends[index][0]:
            index += 1
        kinds.append(ends[index][1] if end <= ends[index][0] else SCAFFOLD)
    return kinds


def _clean(text: str) -> str:
    """The two marker characters are dropped from contents: they are private-use and carry no
    meaning."""
    return text.replace(_OPEN, "").replace(_CLOSE, "")


def _token_text(token: str | Mapping[str, str]) -> str:
    return token if isinstance(token, str) else token["content"]


def _raise_exception(message: str) -> None:
    raise TemplateError(message)
