"""Terms beside the plain policy loss: masks, distance to a reference, corrections, roles, spans."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.training.builders import make_row, make_step
from tests.training.test_local_backend import pass_over, session
from tests.training.test_objective import evaluate
from training import losses, objective, passes
from training.credit import group_advantages
from training.errors import ConfigurationError
from training.losses import build_streams
from training.passes import PassOptions, logprobs
from training.reference import with_needed_scores
from training.tokenizer import ChatTokenizer
from training.types import (
    AdvantageMode,
    AdvantageSpec,
    EnvNorm,
    EnvTarget,
    KlKind,
    MismatchCorrection,
    ObjectiveSpec,
    PgNorm,
    PolicyLoss,
    Row,
)
from training.volatile import mark_volatile, volatile_spans

RAW = AdvantageSpec(mode=AdvantageMode.NONE)


@pytest.mark.parametrize(
    ("p", "old", "advantage", "gradient"),
    [
        (0.7, 0.4, 1.0, 0.0),  # it already rose by more than 0.2, and A pushes it up
        (0.7, 0.4, -1.0, 0.7 / 0.4),
        (0.4, 0.7, -1.0, 0.0),
        (0.4, 0.7, 1.0, -0.4 / 0.7),
        (0.02, 0.005, 1.0, -4.0),  # a ratio of 4 that a clip would cut: rare tokens stay
    ],
)
def test_dppo_masks_by_the_move_of_the_probability(
    p: float, old: float, advantage: float, gradient: float
) -> None:
    row = make_row("A", reward=advantage, logprobs=(0.0, math.log(old)))
    spec = ObjectiveSpec(policy_loss=PolicyLoss.DPPO, advantage=RAW)
    _, grads, _ = evaluate([row], [[math.log(p)]], spec)
    assert grads[0][0] == pytest.approx(gradient)


@given(
    lp=st.floats(-4, -0.1),
    old=st.floats(-4, -0.1),
    reference=st.floats(-4, -0.1),
    coef=st.floats(0.01, 2.0),
)
def test_k3_is_a_loss_of_every_action_token_even_without_advantage(
    lp: float, old: float, reference: float, coef: float
) -> None:
    row = replace(
        make_row("AE", reward=0.0, logprobs=(0.0, old, 0.0)),
        reference_logprobs=(0.0, reference, 0.0),
    )
    loss, grads, streams = evaluate([row], [[lp, -1.0]], ObjectiveSpec(lambda_env=0, kl_coef=coef))
    ratio, gap = math.exp(lp - old), reference - lp
    k3 = math.exp(gap) - 1.0 - gap
    assert streams.rows[0].advantage == 0.0
    assert loss == pytest.approx(coef * ratio * k3, abs=1e-12)
    assert grads[0][0] == pytest.approx(coef * ratio * (k3 + 1.0 - math.exp(gap)), abs=1e-9)
    assert k3 >= 0.0


def test_the_gradient_of_k3_is_that_of_the_true_distance() -> None:
    """Summed over all outcomes with their sampling probabilities: exact, whatever the sampler."""
    logits = torch.tensor([0.3, -1.0, 0.8], dtype=torch.float64, requires_grad=True)
    reference = torch.log_softmax(torch.tensor([1.0, 0.0, -0.5], dtype=torch.float64), -1)
    old = torch.log_softmax(torch.tensor([0.0, 0.2, 0.1], dtype=torch.float64), -1)
    lp = torch.log_softmax(logits, -1)
    true = torch.autograd.grad((lp.exp() * (lp - reference)).sum(), logits)[0]
    lp = torch.log_softmax(logits, -1)
    spec, total = ObjectiveSpec(lambda_env=0.0, kl_coef=1.0), lp.new_zeros(())
    for i in range(3):
        row = replace(
            make_row("A", reward=0.0, logprobs=(0.0, float(old[i]))),
            reference_logprobs=(0.0, float(reference[i])),
        )
        parts = objective.from_logprobs([lp[i : i + 1]], build_streams([row], spec).rows, spec)
        total = total + old[i].exp() * parts.loss
    found = torch.autograd.grad(total, logits)[0]
    torch.testing.assert_close(found, true, rtol=0, atol=1e-12)


def test_k1_is_taken_off_the_reward() -> None:
    rows = [
        replace(
            make_row("AA", rollout=str(i), reward=1.0, logprobs=(0.0, -1.0, -1.0)),
            reference_logprobs=(0.0, -1.0, -1.0 - gap),
        )
        for i, gap in enumerate((0.0, 2.0))
    ]
    streams = build_streams(rows, ObjectiveSpec(kl_coef=0.1, kl_kind=KlKind.K1))
    assert [s.advantage for s in streams.rows] == pytest.approx([0.1, -0.1])
    assert streams.rows[0].rl_reference is None


@pytest.mark.parametrize("kind", list(KlKind))
def test_a_reference_that_is_missing_is_named(kind: KlKind) -> None:
    with pytest.raises(ConfigurationError, match="kl_coef"):
        build_streams([make_row("A")], ObjectiveSpec(kl_coef=0.1, kl_kind=kind))


@pytest.mark.parametrize(
    ("mode", "weights", "old"),
    [
        (MismatchCorrection.NONE, [1.0, 1.0], [-2.0, -3.0]),
        (MismatchCorrection.TRUNCATE, [2.0, math.exp(-0.5)], [-1.0, -3.5]),
        (MismatchCorrection.SEQUENCE_MASK, [1.0, 1.0], [-1.0, -3.5]),
    ],
)
def test_the_mismatch_of_sampler_and_trainer_is_corrected(
    mode: MismatchCorrection, weights: list[float], old: list[float]
) -> None:
    row = replace(
        make_row("AA", reward=1.0, logprobs=(0.0, -2.0, -3.0)),
        trainer_logprobs=(0.0, -1.0, -3.5),
    )
    spec = ObjectiveSpec(advantage=RAW, mismatch=mode, pg_norm=PgNorm.TOKEN_MEAN)
    stream = build_streams([row], spec).rows[0]
    assert stream.rl_weights == pytest.approx([w / 2 for w in weights])
    assert stream.rl_old_logprobs == tuple(old)


def test_a_sequence_that_the_trainer_reads_quite_differently_is_left_out() -> None:
    row = replace(
        make_row("AAE", reward=1.0, logprobs=(0.0, -2.0, -3.0, 0.0)),
        trainer_logprobs=(0.0, -1.0, -3.0, 0.0),
    )
    spec = ObjectiveSpec(advantage=RAW, mismatch=MismatchCorrection.SEQUENCE_MASK)
    _, grads, _ = evaluate([row], [[-1.0, -3.0, -1.0]], spec)
    assert grads[0][:2] == [0.0, 0.0]
    assert grads[0][2] < 0.0


def test_supervised_training_takes_successes_alone_and_averages_over_them() -> None:
    rows = [
        make_row("AAE", rollout="a", reward=1.0),
        make_row("A", rollout="b", reward=0.4),
        make_row("A", rollout="c", reward=1.0),
    ]
    spec = ObjectiveSpec(
        lambda_env=0.0,
        policy_loss=PolicyLoss.REINFORCE,
        advantage=AdvantageSpec(mode=AdvantageMode.SUCCESS),
    )
    loss, grads, _ = evaluate(rows, [[-1.0, -3.0, -9.0], [-7.0], [-4.0]], spec)
    assert loss == pytest.approx((2.0 + 4.0) / 2)
    assert grads == [[-0.25, -0.25, 0.0], [0.0], [-0.5]]


def test_success_needs_no_spread() -> None:
    spec = AdvantageSpec(mode=AdvantageMode.SUCCESS, success_reward=0.5)
    assert group_advantages(groups=["g", "g"], rewards=[0.5, 0.5], spec=spec) == [1.0, 1.0]


@pytest.mark.parametrize("norm", list(EnvNorm))
def test_each_role_has_its_own_lambda(norm: EnvNorm) -> None:
    row = make_row("AWEE", reward=None)
    spec = ObjectiveSpec(
        lambda_env=0.4, env_norm=norm, max_seq_len=8, lambda_roles={"warning": 0.25}
    )
    _, grads, streams = evaluate([row], [[-1.0] * 4], spec)
    assert streams.n_env == 3
    assert grads[0][1] == pytest.approx(grads[0][2] * 0.25)
    assert grads[0][2] == grads[0][3] < 0.0


def test_a_role_at_zero_is_no_target() -> None:
    spec = ObjectiveSpec(env_target=EnvTarget.ALL, lambda_roles={"warning": 0.0})
    plain = ObjectiveSpec()
    rows = [make_row("AWE")]
    assert evaluate(rows, [[-1.0] * 3], spec) == evaluate(rows, [[-1.0] * 3], plain)


@pytest.mark.parametrize("roles", [{"tool": 1.0}, {"warning": -1.0}, {"warning": math.nan}])
def test_impossible_roles_are_refused(roles: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match="lambda_roles"):
        build_streams([], ObjectiveSpec(lambda_roles=roles))


def test_lambda_zero_runs_no_environment_code(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("environment code ran")

    for module, name in (
        (losses, "_env_weights"),
        (losses, "_env_denominator"),
        (objective, "env_weights"),
        (objective, "env_loss"),
        (passes._Pass, "_env"),
    ):
        monkeypatch.setattr(module, name, fail)
    opened = session(tiny_folder)
    pass_over(opened, make_step(), ObjectiveSpec(lambda_env=0.0))
    with pytest.raises(AssertionError, match="environment code"):
        pass_over(opened, make_step(), ObjectiveSpec(lambda_env=0.1))


VOLATILE = [
    ("Modified: 2026-11-30 01:23:45.678 by root", ["2026-11-30 01:23:45.678"]),
    ("commit 3fa9c1d fixes it", ["3fa9c1d"]),
    ("-rw-r--r-- 1 root 8096 Nov 29 22:43 a.md", ["Nov 29 22:43"]),
    ("process 4711 died after 12.5 ms", ["process 4711", "12.5 ms"]),
    ("at 0x7f3a10cc in /tmp/tmp_ab12cd", ["0x7f3a10cc", "/tmp/tmp_ab12cd"]),
    ("id=6f1c2e4a-0b1d-4c55-9a77-0123456789ab", ["6f1c2e4a-0b1d-4c55-9a77-0123456789ab"]),
    ("total 42 lines, defaced facade, 1234567 bytes", []),
    ("ERROR payment failed for order 17", []),
]


@pytest.mark.parametrize(("text", "expected"), VOLATILE)
def test_spans_that_nobody_can_predict_are_found(text: str, expected: list[str]) -> None:
    assert [text[a:b] for a, b in volatile_spans(text)] == expected


def test_volatile_tokens_leave_the_loss_and_stay_in_the_length(tiny_folder: Path) -> None:
    tokenizer = ChatTokenizer.from_folder(tiny_folder)
    texts = ["x", "ls -l", "file at 2026-11-30 01:23:45 ok", "done"]
    ids = [tokenizer.encode(text) for text in texts]
    roles = "".join(role * len(part) for role, part in zip("CAEA", ids, strict=True))
    row = make_row(roles[1:], ids=tuple(token for part in ids for token in part))
    (marked,) = mark_volatile([row], tokenizer.pieces)
    kept = [i for i, kind in enumerate(row.kinds) if kind == "env_output"]
    untrained = [tokenizer.decode([i]) for i in (marked.ids[t] for t in marked.untrained)]
    assert "".join(untrained) == "2026-11-30 01:23:45"
    before, after = (build_streams([r], ObjectiveSpec()).rows[0] for r in (row, marked))
    assert len(after.env_targets) == len(kept) - len(marked.untrained)
    assert after.sets.observation == before.sets.observation
    assert after.env_weights[0] == before.env_weights[0]
    assert after.rl_targets == before.rl_targets


@pytest.mark.parametrize(
    ("loss", "logprob", "old", "advantage", "is_cut"),
    [
        (PolicyLoss.PPO_CLIP, -0.5, -1.0, 1.0, 1),
        (PolicyLoss.PPO_CLIP, -0.5, -1.0, -1.0, 0),
        (PolicyLoss.PPO_CLIP, -1.5, -1.0, -1.0, 1),
        (PolicyLoss.CISPO, -0.5, -1.0, -1.0, 1),
        (PolicyLoss.DPPO, -0.5, -1.0, 1.0, 1),
        (PolicyLoss.DPPO, -4.5, -5.0, 1.0, 0),
        (PolicyLoss.TRUNCATED_IMPORTANCE, -0.1, -1.0, 1.0, 1),
        (PolicyLoss.REINFORCE, -0.1, -9.0, 1.0, 0),
    ],
)
def test_tokens_that_the_clip_has_cut_are_counted(
    loss: PolicyLoss, logprob: float, old: float, advantage: float, is_cut: int
) -> None:
    row = make_row("A", reward=advantage, logprobs=(0.0, old))
    spec = ObjectiveSpec(policy_loss=loss, advantage=RAW)
    targets = objective.policy_targets(build_streams([row], spec).rows, dtype=torch.float64)
    current = torch.tensor([logprob], dtype=torch.float64)
    assert objective.count_clipped(current, targets, spec) == is_cut


def test_an_expression_that_does_not_compile_is_named() -> None:
    with pytest.raises(ConfigurationError, match="volatile_patterns"):
        volatile_spans("x", ["("])


def test_rows_are_scored_by_the_base_model_and_by_the_policy(tiny_folder: Path) -> None:
    adapted, base = session(tiny_folder), session(tiny_folder, adapted=False)
    rows: list[Row] = make_step()
    spec = ObjectiveSpec(kl_coef=0.1, mismatch=MismatchCorrection.TRUNCATE)
    score = partial(logprobs, adapted.model, temperature=1.0, options=PassOptions())
    scored = with_needed_scores(adapted.model, rows, spec, score)
    own = adapted.forward(rows, temperature=1.0).result()
    plain = base.forward(rows, temperature=1.0).result()
    for row, mine, other in zip(scored, own, plain, strict=True):
        assert row.trainer_logprobs == pytest.approx((0.0, *mine), abs=1e-4)
        assert row.reference_logprobs == pytest.approx((0.0, *other), abs=1e-4)
    assert own != plain
    assert with_needed_scores(adapted.model, rows, ObjectiveSpec(), score) == rows
    pass_over(adapted, scored, spec)
