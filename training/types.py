"""Words and records of the trainer: token kinds, rows, and the options of the objective.

Pure: no torch, no Django. Every option that changes the number a loss has is a field here and is
written into the job's manifest, because neither lambda nor an advantage means anything without the
normalisation beside it (ECHO, arXiv 2605.24517, sections 3 and 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class TokenKind(StrEnum):
    """The role of one token; it belongs to the token that is predicted, never to its position."""

    CONTEXT = "context"
    """System text, task, history: never a target."""
    ACTION = "action"
    """Sampled by the policy: target of the policy term."""
    ENV_OUTPUT = "env_output"
    """Content the environment answered with: target of the environment term."""
    WARNING = "warning"
    """The harness's own words inside an observation: counted in its length, not trained on."""
    SCAFFOLD = "scaffold"
    """Chat-template tokens: in no set."""
    PAD = "pad"
    """Filler: in no set."""


class RowStatus(StrEnum):
    """How the rollout of a row ended."""

    OK = "ok"
    """Ended by itself and was graded."""
    TRUNCATED = "truncated"
    """Ran out of a budget; keeps its environment loss."""
    FAILED = "failed"
    """The attempt went wrong; keeps its environment loss, has no reward."""
    INFRASTRUCTURE = "infrastructure"
    """The machinery failed; contributes nothing."""
    PAD = "pad"
    """A dummy row that fills a batch; ignored everywhere."""


class EnvNorm(StrEnum):
    """What the environment term of a rollout is divided by (n: its targets, O: its observation)."""

    FULL_OBSERVATION_TOKENS = "full_observation_tokens"
    """B times |O|, warnings included (the paper)."""
    SELECTED_TOKENS = "selected_tokens"
    """B times n."""
    GLOBAL_TOKENS = "global_tokens"
    """All targets of the step (prime-rl)."""
    MAX_SEQ_LEN = "max_seq_len"
    """B times a constant length."""
    NONEMPTY_SEQUENCE_MEAN = "nonempty_sequence_mean"
    """Rollouts that have targets, times n."""
    RAW_SUM = "raw_sum"
    """Nothing."""


class PgNorm(StrEnum):
    """What the policy term of a rollout is divided by."""

    SEQUENCE_MEAN = "sequence_mean"
    """B times its action tokens."""
    TOKEN_MEAN = "token_mean"
    """All action tokens of the step."""
    MAX_SEQ_LEN = "max_seq_len"
    """B times a constant length."""


class EnvTarget(StrEnum):
    """Which observation tokens are trained on."""

    ENV_ONLY = "env_only"
    """Environment output without warnings."""
    ALL = "all"
    """Environment output and warnings."""


class PolicyLoss(StrEnum):
    """The per-token policy loss; r is the ratio to the sampler, A the advantage."""

    PPO_CLIP = "ppo_clip"
    """-min(r A, clip(r) A)."""
    REINFORCE = "reinforce"
    """-A log p."""
    IMPORTANCE = "importance"
    """-r A."""
    TRUNCATED_IMPORTANCE = "truncated_importance"
    """-min(r, cap) A log p, the weight without gradient."""
    CISPO = "cispo"
    """-clip(r) A log p, the weight without gradient: every token keeps a gradient."""
    DPPO = "dppo"
    """-r A, but nothing where the probability itself has already moved beyond the mask in the
    direction that A pushes (arXiv 2602.04879, as prime-rl computes it)."""


class KlKind(StrEnum):
    """How the distance to a reference policy is estimated, per action token; r = p_ref / p."""

    K1 = "k1"
    """-log r of what was sampled, taken off the reward: as a loss its gradient has mean zero."""
    K3 = "k3"
    """r - 1 - log r as a loss, with the importance ratio to the sampler."""


class MismatchCorrection(StrEnum):
    """What is done where sampler and trainer differ although their weights are the same.

    Needs the trainer's own log-probs of the beginning of the step beside the sampler's.
    """

    NONE = "none"
    """The policy ratio is taken to the sampler itself."""
    TRUNCATE = "truncate"
    """Ratio to the trainer's own; tokens weighted by min(own / sampler's, cap)."""
    SEQUENCE_MASK = "sequence_mask"
    """Ratio to the trainer's own; rows whose product of own / sampler's exceeds the cap or falls
    below its inverse are left out."""


class AdvantageMode(StrEnum):
    """How rewards of a group become advantages."""

    CENTRE = "centre"
    """Reward minus the group's mean."""
    STD = "std"
    """Centred, divided by the sample standard deviation plus eps."""
    STD_POPULATION = "std_population"
    """Centred, divided by the population standard deviation plus eps."""
    LEAVE_ONE_OUT = "leave_one_out"
    """Reward minus the mean of the others."""
    NONE = "none"
    """The reward itself."""
    SUCCESS = "success"
    """1 from the success threshold on, else 0. With `reinforce` this is supervised training on
    successes, averaged over these."""


class GroupOfOne(StrEnum):
    """What a group with a single scored rollout gives."""

    ZERO = "zero"
    """Advantage 0: there is nothing to compare with."""
    REWARD = "reward"
    """Mean 0 and standard deviation 1 are assumed (the ECHO reference trainer)."""


class InfrastructureRows(StrEnum):
    """Whether infrastructure failures count beside the rows that are trained on."""

    EXCLUDE = "exclude"
    """Neither in the group statistics nor in the number of rollouts."""
    COUNT = "count"
    """In both, with reward 0 (the ECHO reference trainer)."""


@dataclass(frozen=True, slots=True)
class TurnCounts:
    """What the quality filter needs to know of a rollout."""

    turns: int
    parse_errors: int
    """Turns whose action could not be parsed."""
    clean_turns: int
    """Turns with neither a parse error nor a format violation."""


@dataclass(frozen=True, slots=True)
class Row:
    """One flat token sequence of a rollout; a rollout is one row as long as its prompts extend.

    `ids`, `kinds` and `logprobs` have one entry per token. `logprobs` are the sampler's at the
    sampling temperature for action tokens; other entries are storage artefacts and never used.
    """

    rollout: str
    group: str
    reward: float | None
    """None: no score; such a row is left out of the policy term and of the group's statistics."""
    status: RowStatus
    ids: tuple[int, ...]
    kinds: tuple[TokenKind, ...]
    logprobs: tuple[float, ...] | None
    """None: the current policy is the sampler."""
    weight_version: str = ""
    quality: TurnCounts | None = None
    trains_env: bool = True
    """False: a quality filter cleared the environment term of this row."""
    untrained: tuple[int, ...] = ()
    """Tokens (indices, ascending) that a token filter took out of the environment term; they count
    in the length of the observation as warnings do."""
    trainer_logprobs: tuple[float, ...] | None = None
    """The trainer's own at the beginning of the step, per token; for the mismatch correction."""
    reference_logprobs: tuple[float, ...] | None = None
    """The reference policy's, per token; for the KL term."""


@dataclass(frozen=True, slots=True)
class AdvantageSpec:
    """Options of the group advantage."""

    mode: AdvantageMode = AdvantageMode.CENTRE
    eps: float = 1e-6
    group_of_one: GroupOfOne = GroupOfOne.ZERO
    success_reward: float = 1.0
    """A rollout is a success from this reward on (mode `success`)."""


@dataclass(frozen=True, slots=True)
class ObjectiveSpec:
    """Everything that decides the value of the loss, apart from rows and weights."""

    lambda_env: float = 0.05
    """Weight of the environment term; 0 means that its code does not run."""
    env_norm: EnvNorm = EnvNorm.FULL_OBSERVATION_TOKENS
    env_eps: float = 0.0
    """Above 0: denominators are n + eps instead of max(n, 1), as in the reference trainer."""
    env_target: EnvTarget = EnvTarget.ENV_ONLY
    lambda_roles: Mapping[str, float] = field(default_factory=dict)
    """Multiples of lambda by token kind (`env_output`, `warning`). A kind that is not named has 1
    where `env_target` selects it, else 0; a kind at 0 is no target and leaves the counts."""
    max_env_tokens_per_observation: int | None = None
    """At most the first k targets of each observation; denominators keep the whole observation."""
    env_temperature: float = 1.0
    policy_temperature: float = 1.0
    policy_loss: PolicyLoss = PolicyLoss.PPO_CLIP
    pg_norm: PgNorm = PgNorm.SEQUENCE_MEAN
    clip_low: float = 0.2
    clip_high: float = 0.28
    importance_cap: float = 2.0
    """Of truncated importance sampling, both as a loss and as a mismatch correction."""
    dppo_low: float = 0.2
    dppo_high: float = 0.2
    """Differences of probabilities, 0 to 1, beyond which `dppo` masks."""
    mismatch: MismatchCorrection = MismatchCorrection.NONE
    kl_coef: float = 0.0
    """Of the distance to the reference policy; 0 means that it is not computed."""
    kl_kind: KlKind = KlKind.K3
    log_ratio_penalty: float = 0.0
    """Times (log r)^2 to the sampler, per action token (1e-3 in prime-rl)."""
    use_rl: bool = True
    max_seq_len: int | None = None
    cut: int | None = None
    """Targets beyond this many are ignored in every set and every count."""
    advantage: AdvantageSpec = field(default_factory=AdvantageSpec)
    truncated_in_rl: bool = True
    """False: truncated rollouts stay in the group's statistics but get no policy gradient."""
    infrastructure: InfrastructureRows = InfrastructureRows.EXCLUDE

    @property
    def needs_scores(self) -> bool:
        """Whether rows must be scored before a step (`training.reference`)."""
        return self.kl_coef != 0.0 or self.mismatch is not MismatchCorrection.NONE
