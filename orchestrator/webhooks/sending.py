"""One attempt to deliver, and when the next one comes."""

from __future__ import annotations

import time
from typing import Any

import httpx
from django.db import transaction
from django.utils import timezone

from orchestrator import measures
from orchestrator.jobs import services as jobs
from orchestrator.jobs.errors import Retryable
from orchestrator.jobs.fencing import Fence, hold_fence
from orchestrator.projects.secrets import SecretUnreadable, decrypt
from orchestrator.webhooks.models import Delivery, DeliveryState, Webhook
from orchestrator.webhooks.signing import headers_of
from orchestrator.webhooks.targets import TargetRefused, resolve

JOB_KIND = "webhooks.deliver"
DELAYS_S = (5.0, 30.0, 120.0, 600.0, 3600.0, 4 * 3600.0, 12 * 3600.0)
"""After the first attempt, the second, and so on; the one after the last is the last."""
TIMEOUT_S = 15.0
ANSWER_CHARS = 500
_GONE = 410


class GivenUp(RuntimeError):
    """No further attempt makes sense."""


def queue_delivery(
    webhook: Webhook, topic: str, body: str, *, replay_of: Delivery | None = None
) -> Delivery:
    """Needs a transaction: the row and its job, or neither."""
    delivery = Delivery(webhook=webhook, topic=topic, body=body, replay_of=replay_of)
    if replay_of is not None:
        delivery.message_id = replay_of.message_id
    delivery.save()
    delivery.job = jobs.enqueue(
        kind=JOB_KIND,
        spec={"delivery_id": delivery.pk},
        key=f"delivery-{delivery.pk}",
        max_attempts=len(DELAYS_S) + 1,
    )
    delivery.save(update_fields=["job"])
    return delivery


def deliver(delivery_id: int, fence: Fence) -> None:
    """Raises Retryable while attempts are left, GivenUp at the end of them."""
    delivery = Delivery.objects.select_related("webhook").filter(pk=delivery_id).first()
    if delivery is None or delivery.state != DeliveryState.WAITING:
        return
    if not delivery.webhook.is_active:
        raise GivenUp("The webhook was stopped meanwhile.")
    attempt = attempt_at(delivery)
    with transaction.atomic():
        hold_fence(fence)
        attempts = [*delivery.attempts, attempt]
        is_done = not attempt["error"]
        Delivery.objects.filter(pk=delivery.pk).update(
            attempts=attempts,
            **({"state": DeliveryState.DELIVERED, "ended_at": timezone.now()} if is_done else {}),
        )
        if attempt["status"] == _GONE:
            Webhook.objects.filter(pk=delivery.webhook_id).update(
                is_active=False,
                stopped_reason="It answered 410 Gone, which asks for no more messages.",
            )
    measures.WEBHOOK_ATTEMPTS.labels("delivered" if is_done else "failed").inc()
    if is_done:
        return
    if attempt["status"] == _GONE or len(attempts) > len(DELAYS_S):
        raise GivenUp(attempt["error"])
    raise Retryable(attempt["error"], delay_s=DELAYS_S[len(attempts) - 1])


def record_unfinished(delivery_id: int, error: str) -> None:
    """The job has ended without a delivery."""
    Delivery.objects.filter(pk=delivery_id, state=DeliveryState.WAITING).update(
        state=DeliveryState.FAILED, ended_at=timezone.now()
    )


def attempt_at(delivery: Delivery) -> dict[str, Any]:
    """Sends it once; what came of it. `error` is empty after a 2xx."""
    began, at = time.monotonic(), timezone.now()
    status, answer, error = None, "", ""
    try:
        status, answer = _post(delivery, int(at.timestamp()))
        if not 200 <= status < 300:
            error = f"It answered {status}."
    except (TargetRefused, SecretUnreadable) as refusal:
        error = str(refusal)
    except httpx.TimeoutException:
        error = f"No answer within {TIMEOUT_S:g} s."
    except (httpx.HTTPError, httpx.InvalidURL) as fault:
        error = f"No connection: {str(fault) or type(fault).__name__}."
    return {
        "at": at.isoformat(),
        "status": status,
        "seconds": round(time.monotonic() - began, 3),
        "error": error,
        "answer": answer,
    }


def _post(delivery: Delivery, timestamp_s: int) -> tuple[int, str]:
    target = resolve(delivery.webhook.url)
    body = delivery.body.encode()
    signed = headers_of(
        decrypt(delivery.webhook.secret),
        message_id=f"msg_{delivery.message_id.hex}",
        timestamp_s=timestamp_s,
        body=body,
    )
    headers = {
        **signed,
        "Host": target.host,
        "Content-Type": "application/json",
        "User-Agent": "Switchback-Webhooks/1",
        "Accept-Encoding": "identity",
    }
    timeout = httpx.Timeout(TIMEOUT_S)
    with (
        httpx.Client(timeout=timeout, follow_redirects=False, trust_env=False) as client,
        client.stream(
            "POST",
            target.url,
            content=body,
            headers=headers,
            extensions={"sni_hostname": target.name},
        ) as answer,
    ):
        return answer.status_code, _beginning(answer, time.monotonic() + TIMEOUT_S)


def _beginning(answer: httpx.Response, deadline_s: float) -> str:
    """Of an answer that may never end."""
    read = b""
    for chunk in answer.iter_raw(1024):
        read += chunk
        if len(read) >= 4 * ANSWER_CHARS or time.monotonic() > deadline_s:
            break
    return read.decode(errors="replace").replace("\x00", "\ufffd")[:ANSWER_CHARS]
