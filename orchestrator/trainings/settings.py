"""What a training is made of, stored with whoever asked for it as JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

SAMPLERS = ("sequential", "uniform", "signal")
SHARDS = ("ddp", "fsdp2")


@dataclass(frozen=True)
class TrainSettings:
    """One ECHO rung. The weight of the environment loss means nothing without its normalisation."""

    steps: int = 12
    groups: int = 4
    """Tasks per step."""
    samples: int = 8
    """Rollouts per task."""
    sampler: str = "sequential"
    """Which tasks come next: `sequential` (shuffled passes over all), `uniform`, or `signal` (what
    a group of rollouts is expected to tell per token): see `environments.curriculum.samplers`.
    """
    sampler_settings: dict[str, Any] = field(default_factory=dict)
    """Of `signal`: decay, prior_strength, floor, by. Its group size is `samples`."""
    learning_rate: float = 1e-4
    warmup_steps: int = 1
    full_weights: bool = False
    """Every weight is trained, and each version is a whole model; else an adapter is."""
    lora_rank: int = 16
    lora_alpha: float = 32.0
    env_loss_weight: float = 0.05
    env_normalisation: str = "global_tokens"
    advantage: str = "std"
    temperature: float = 0.7
    clip_norm: float = 1.0
    threads: int = 2
    budget_tokens: int = 512
    """Input tokens of one pass below the step's shared beginning. On a step of the demo (SmolLM2)
    the trainer peaks at 1.4 GB, with 1,024 at 1.9; both take about 28 s of a core.
    """
    evaluate_every: int = 4
    """Steps between two evaluations on the split `select`; the best of them is the result. Before
    the first step and after the last there is one as well. 0: none, and the last step is."""
    evaluate_rollouts: int = 16
    """Of one evaluation at most; the same tasks and seeds each time."""
    pauses_on_alarm: bool = True
    """A training that looks collapsed waits for a person."""
    priority: int = 0
    """In the queue for devices: -10 to 10, higher first."""
    device: str = "cpu"
    """Kind of device: `cpu` or `cuda`."""
    processes: int = 1
    """Of the trainer on its host; above 1 they are started by torchrun, each with a share of the
    rows."""
    shard: str = "ddp"
    """How several processes hold the weights: `ddp`, all of them on each, or `fsdp2`, the blocks in
    shards."""
    interpreter: str = ""
    """Python that runs the trainer; empty: the worker's own."""

    def __post_init__(self) -> None:
        check_sampler("sampler", self.sampler)
        if self.device not in ("cpu", "cuda"):
            raise ValueError(f"device is one of cpu, cuda, not {self.device!r}.")
        if self.processes < 1:
            raise ValueError(f"processes is 1 or more, not {self.processes}.")
        if self.shard not in SHARDS:
            raise ValueError(f"shard is one of {', '.join(SHARDS)}, not {self.shard!r}.")
        if self.shard != "ddp" and self.processes == 1:
            raise ValueError(f"shard {self.shard} needs processes of 2 or more.")
        if not -10 <= self.priority <= 10:
            raise ValueError(f"priority is from -10 to 10, not {self.priority}.")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TrainSettings:
        """Raises ValueError naming an unknown field."""
        known = {f.name for f in fields(cls)}
        unknown = set(data) - known
        if unknown:
            raise ValueError(f"Unknown {cls.__name__}: {', '.join(sorted(unknown))}.")
        return cls(**data)

    @property
    def trained(self) -> str:
        """In words."""
        return "every weight" if self.full_weights else f"LoRA rank {self.lora_rank}"

    def evaluated_steps(self) -> list[int]:
        """After which steps there is an evaluation."""
        if self.evaluate_every == 0:
            return []
        steps = range(0, self.steps + 1, self.evaluate_every)
        return sorted({*steps, self.steps})


def check_sampler(name: str, value: str) -> None:
    """Raises ValueError."""
    if value not in SAMPLERS:
        raise ValueError(f"{name} is one of {', '.join(SAMPLERS)}, not {value!r}.")
