"""Models as endpoints: our own model server, one that trains for us, or any other that speaks the
OpenAI protocol."""

from __future__ import annotations

from django.db import models


class EndpointKind(models.TextChoices):
    LOCAL = "local", "Switchback model server"
    """Gives token ids and log-probabilities, loads adapters by name."""
    OPENAI = "openai", "OpenAI-compatible"
    """Text in, text out: enough for evaluation and harness search, not for training."""
    TINKER = "tinker", "Tinker protocol"
    """A server that keeps, trains and samples weights; asked through a bridge on this machine."""


GIVE_TOKENS = (EndpointKind.LOCAL, EndpointKind.TINKER)
"""Kinds that give what training needs: token ids and log-probabilities as sampled."""


class ModelEndpoint(models.Model):
    project = models.ForeignKey(
        "projects.Project", on_delete=models.CASCADE, related_name="model_endpoints"
    )
    name = models.CharField(max_length=120)
    kind = models.CharField(max_length=16, choices=EndpointKind.choices)
    base_url = models.CharField(max_length=400, blank=True)
    """Without the `/v1`; empty for `local`: the address of this installation's model server."""
    model = models.CharField(max_length=200)
    tokenizer_path = models.CharField(max_length=400, blank=True)
    """Of a Tinker endpoint: folder with tokenizer and configuration of its base; empty: those of
    this installation's model."""
    adapter_path = models.CharField(max_length=400, blank=True)
    """Folder of the adapter that `model` names, for weights that were trained here."""
    supports_tools = models.BooleanField(null=True, blank=True)
    """Whether it can be offered functions to call; null: a run finds out and writes it here."""
    supports_schema = models.BooleanField(null=True, blank=True)
    """Whether replies can be held to a JSON schema; null: a judge finds out and writes it here."""
    secret = models.TextField(blank=True)
    """API key, encrypted: `orchestrator.projects.secrets`."""
    is_judge = models.BooleanField(default=False)
    """Asked by criteria that name no model."""
    price_in_usd_per_mtok = models.FloatField(default=0.0)
    price_out_usd_per_mtok = models.FloatField(default=0.0)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "name"], name="endpoint_name_in_project"),
            models.UniqueConstraint(
                fields=["project"], condition=models.Q(is_judge=True), name="one_judge_in_project"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def gives_tokens(self) -> bool:
        """Whether rollouts of it can be trained on."""
        return self.kind in GIVE_TOKENS
