"""Recognises an action in which the model writes role markers, as if it were the transcript.

Two ways in which a policy does that: special tokens of the chat template that open or close a turn,
and the words with which transcripts are written out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from tokenizers import Tokenizer

_WORDS = re.compile(
    r"(?im)^\s*(?:\[|<|\*\*)?(?:observation|user|human|assistant|system|tool|environment)"
    r"(?:\]|>|\*\*)?\s*:"
)


def role_marker_test(model: Path) -> Callable[[Sequence[int]], bool] | None:
    """A test of the tokens of one action; None where the folder has no tokenizer.

    The token that ends a turn may stand at the end of an action, once.
    """
    file = model / "tokenizer.json"
    if not file.is_file():
        return None
    tokenizer = Tokenizer.from_file(str(file))
    added = json.loads(file.read_text(encoding="utf-8")).get("added_tokens", [])
    special = {int(token["id"]) for token in added if token.get("special")}

    def has_marker(ids: Sequence[int]) -> bool:
        body = ids[:-1] if ids and ids[-1] in special else ids
        if any(token in special for token in body):
            return True
        return _WORDS.search(tokenizer.decode(list(body))) is not None

    return has_marker
