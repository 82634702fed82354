"""The signature against the vector that the specification prints, and against forgeries."""

from __future__ import annotations

import pytest

from orchestrator.webhooks.signing import TOLERANCE_S, is_genuine, new_secret, signature

# standard-webhooks/standard-webhooks, spec: the example of a symmetric signature.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MESSAGE, AT, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
GIVEN = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_example_of_the_specification() -> None:
    assert signature(SECRET, message_id=MESSAGE, timestamp_s=AT, body=BODY) == GIVEN


@pytest.mark.parametrize(
    ("change", "is_right"),
    [
        ({}, True),
        ({"given": f"v1,AAAA {GIVEN}"}, True),
        ({"body": BODY + b" "}, False),
        ({"message_id": "msg_other"}, False),
        ({"timestamp_s": AT + 1}, False),
        ({"now_s": AT + TOLERANCE_S + 1.0}, False),
        ({"given": ""}, False),
    ],
)
def test_what_is_genuine(change: dict[str, object], is_right: bool) -> None:
    asked: dict[str, object] = {
        "message_id": MESSAGE,
        "timestamp_s": AT,
        "body": BODY,
        "given": GIVEN,
        "now_s": AT + 5.0,
    }
    assert is_genuine(SECRET, **{**asked, **change}) is is_right  # type: ignore[arg-type]


def test_secrets_differ_and_sign() -> None:
    one, two = new_secret(), new_secret()
    assert one != two
    signed = signature(one, message_id="m", timestamp_s=1, body=b"{}")
    assert signed != signature(two, message_id="m", timestamp_s=1, body=b"{}")
