"""The demo's model itself: tokens, log-probabilities and memory on real weights.

Needs a folder made by `python -m training.prepare --out DIR`: the one that `SWITCHBACK_TEST_MODEL`
names, else `var/models/smollm2-135m`.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from training.engine.scheduler import Sampler, SampleRequest
from training.llama import forward_causal, load_llama
from training.prepare import is_ready
from training.tokenizer import ChatTokenizer

FOLDER = Path(os.environ.get("SWITCHBACK_TEST_MODEL", "var/models/smollm2-135m"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_ready(FOLDER), reason=f"no prepared model in {FOLDER}"),
]

TASK = [
    {"role": "system", "content": "Reply with one line: a shell command, or the answer."},
    {"role": "user", "content": "number of lines in a.txt"},
    {"role": "assistant", "content": "wc -l a.txt"},
    {"role": "user", "content": "3 a.txt"},
    {"role": "assistant", "content": "answer: 3"},
]
ODD = [
    "",
    "  lead",
    "a1b22c333 4444",
    "naïve Ünï",
    "日本語 12",
    "😀👍🏽",
    "I'm we'll",
    "\t9\n\n 1",
    "½²",
]


@pytest.fixture(scope="module")
def sampler() -> Iterator[Sampler]:
    sampler = Sampler(FOLDER, name="smollm2")
    yield sampler
    sampler.close()


def test_token_ids_are_those_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    reference = transformers.AutoTokenizer.from_pretrained(FOLDER)
    tokenizer = ChatTokenizer.from_folder(FOLDER)
    for text in ODD:
        assert tokenizer.encode(text) == reference(text, add_special_tokens=False).input_ids
        assert tokenizer.decode(tokenizer.encode(text)) == text
    expected = reference.apply_chat_template(TASK, add_generation_prompt=True, return_dict=False)
    assert tokenizer.encode_messages(TASK).ids == expected


def test_sampler_and_trainer_agree_to_a_hundred_thousandth(sampler: Sampler) -> None:
    asked = [
        SampleRequest(
            "smollm2",
            tuple(
                sampler.tokenizer.encode_messages(
                    [*TASK, {"role": "user", "content": f"first line in f{number}.txt"}]
                ).ids
            ),
            max_tokens=16,
            seed=number,
        )
        for number in range(8)
    ]
    results = [future.result(120) for future in sampler.submit(*asked)]
    model = load_llama(FOLDER)
    differences = []
    with torch.inference_mode():
        for request, result in zip(asked, results, strict=True):
            ids = torch.tensor([*request.prompt_ids, *result.token_ids])
            logprobs = model.lm_head(forward_causal(model, ids)).log_softmax(-1)
            start = len(request.prompt_ids) - 1
            for offset, token in enumerate(result.token_ids):
                expected = float(logprobs[start + offset, token])
                differences.append(result.token_logprobs[offset] - expected)
    assert statistics.pstdev(differences) <= 2e-5
    assert max(map(abs, differences)) <= 1e-4
    assert not any(math.isnan(difference) for difference in differences)


def test_one_demonstration_makes_it_act(sampler: Sampler) -> None:
    prompt = sampler.tokenizer.encode_messages(
        [*TASK, {"role": "user", "content": "number of lines in list.txt"}]
    ).ids
    request = SampleRequest("smollm2", tuple(prompt), max_tokens=16, temperature=0.0, stop=("\n",))
    assert sampler.submit(request)[0].result(60).text.startswith("wc -l ")
