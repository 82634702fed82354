"""Our sampler beside transformers: a ragged group of one prompt, useful tokens per CPU second.

Rows end at lengths that are fixed beforehand, the same for all three. `generate` goes on until its
longest row is done; continuous batching is given a cache of a stated size, since its default takes
most of the memory that is free. The second figure is the difference of the sampler's log-probs and
the trainer's own for the same tokens and weights.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from random import Random
from typing import Any

import torch
from torch import Tensor

from benchmarks.training.part import begin, cpu_s, report
from benchmarks.training.workload import smollm2
from training.backends.local import LocalSession, ModelSpec
from training.engine.scheduler import Sampler, SampleRequest, SampleResult
from training.lora import LoraSpec
from training.types import Row, RowStatus, TokenKind

ROWS = 24
PROMPT_TOKENS = 139
SHORTEST, LONGEST = 8, 64
NO_TOKEN = -1
"""Stands for an end-of-sequence token that no model says, so that lengths are as planned."""


def main() -> None:
    """All figures."""
    begin()
    folder = smollm2()
    random = Random(1)
    lengths = [random.randint(SHORTEST, LONGEST) for _ in range(ROWS)]
    sampler = Sampler(folder, name="base")
    sampler.tokenizer.eos_id = NO_TOKEN
    words = "The office keeps its invoices in folders, one for each month, and asks you to find "
    prompt = sampler.tokenizer.encode(words * 20)[:PROMPT_TOKENS]
    useful = sum(lengths)

    results: list[SampleResult] = []
    ours = useful / cpu_s(lambda: results.extend(_sample(sampler, prompt, lengths)))
    sampler.close()
    report("sampler.useful_tokens_per_cpu_s", ours)
    report("sampler.logprob_sd", _logprob_sd(folder, prompt, results), 1e-5)

    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.eval()
    generated = useful / cpu_s(lambda: _generate(model, prompt, lengths))
    report("generate.useful_tokens_per_cpu_s", generated)
    report("sampler.over_generate", ours / generated, 3.0, is_floor=True)
    batched = useful / cpu_s(lambda: _continuous(model, prompt, lengths))
    report("continuous_batching.useful_tokens_per_cpu_s", batched)
    report("sampler.over_continuous_batching", ours / batched, 1.8, is_floor=True)


def _sample(sampler: Sampler, prompt: list[int], lengths: Sequence[int]) -> list[SampleResult]:
    requests = [
        SampleRequest("base", tuple(prompt), length, seed=i, deadline_s=3600.0)
        for i, length in enumerate(lengths)
    ]
    return [future.result() for future in sampler.submit(*requests)]


def _logprob_sd(folder: Any, prompt: list[int], results: Sequence[SampleResult]) -> float:
    session = LocalSession(ModelSpec(folder, LoraSpec(), budget_tokens=2048))
    rows = [
        Row(
            rollout=str(number),
            group="task",
            reward=None,
            status=RowStatus.OK,
            ids=(*prompt, *result.token_ids),
            kinds=(
                *[TokenKind.CONTEXT] * len(prompt),
                *[TokenKind.ACTION] * len(result.token_ids),
            ),
            logprobs=None,
        )
        for number, result in enumerate(results[:8])
    ]
    scored = session.forward(rows, temperature=1.0).result()
    gaps = [
        own - sampled
        for values, result in zip(scored, results[:8], strict=True)
        for own, sampled in zip(values[len(prompt) - 1 :], result.sampling_logprobs, strict=True)
    ]
    return statistics.pstdev(gaps)


def _generate(model: Any, prompt: list[int], lengths: Sequence[int]) -> None:
    from transformers import StoppingCriteria, StoppingCriteriaList

    limits_R = torch.tensor([len(prompt) + length for length in lengths])

    class Planned(StoppingCriteria):
        def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
            return limits_R <= input_ids.shape[1]

    torch.manual_seed(0)
    ids_R_T = torch.tensor([prompt] * len(lengths))
    with torch.inference_mode():
        model.generate(
            ids_R_T,
            attention_mask=torch.ones_like(ids_R_T),
            do_sample=True,
            top_k=0,
            top_p=1.0,
            max_new_tokens=max(lengths),
            eos_token_id=None,
            pad_token_id=0,
            stopping_criteria=StoppingCriteriaList([Planned()]),
        )


def _continuous(model: Any, prompt: list[int], lengths: Sequence[int]) -> None:
    from transformers import ContinuousBatchingConfig, GenerationConfig

    manager = model.init_continuous_batching(
        generation_config=GenerationConfig(  # type: ignore[no-untyped-call] # transformers leaves it
            do_sample=True, top_k=0, top_p=1.0, eos_token_id=NO_TOKEN, max_new_tokens=LONGEST
        ),
        # A page of 32 tokens lets rows share all but the last page of the prompt; 256 pages of 1.5
        # MB hold every row three times over.
        continuous_batching_config=ContinuousBatchingConfig(
            page_size=32, num_blocks=256, max_batch_tokens=512, use_async_batching=False
        ),
    )
    manager.start()
    try:
        wanted = {
            manager.add_request(list(prompt), max_new_tokens=length, eos_token_id=NO_TOKEN)
            for length in lengths
        }
        tokens = 0
        while wanted:
            result = manager.get_result(timeout=600)
            if result is None or result.error:
                raise RuntimeError(f"continuous batching failed: {result and result.error}")
            if result.is_finished():
                wanted.discard(result.request_id)
                tokens += len(result.generated_tokens)
        if tokens != sum(lengths):
            raise RuntimeError(f"continuous batching gave {tokens} tokens, not {sum(lengths)}")
    finally:
        manager.stop(block=True)


if __name__ == "__main__":
    main()
