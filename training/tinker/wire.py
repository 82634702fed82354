"""Bodies of the Tinker protocol: protobuf of the SDK to what the engine takes, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tinker.proto import tinker_public_pb2 as pb

from training.engine.scheduler import SampleResult
from training.errors import ConfigurationError
from training.tinker.engine import Datum, Passed, Sampled

PROTOBUF = "application/x-protobuf"


def read_forward_backward(
    body: bytes,
) -> tuple[str, list[Datum], str, dict[str, float | str], bool]:
    """Model, data, loss, its settings, and whether it is a forward pass alone.

    Raises ConfigurationError for what this server does not have: images, sparse targets.
    """
    message = pb.ForwardBackwardRequest()
    message.ParseFromString(body)
    data = [
        Datum(
            tokens=tuple(token for chunk in datum.model_input for token in _tokens(chunk)),
            inputs={name: _tensor(tensor) for name, tensor in datum.loss_fn_inputs.items()},
        )
        for datum in message.data
    ]
    settings: dict[str, float | str] = dict(message.loss_fn_config.items())
    for name, value in message.loss_fn_config_v2.items():
        settings[name] = value.text if value.HasField("text") else float(value.number)
    return message.model_id, data, message.loss_fn, settings, message.forward_only


def write_passed(passed: Passed) -> bytes:
    """Log-probabilities of every datum as one run of bytes with its offsets."""
    message = pb.ForwardBackwardOutput()
    message.loss_fn_output_type = "ArrayRecord"
    message.metrics["loss:sum"] = passed.loss
    record = message.loss_fn_outputs.add()
    record.num_datums = len(passed.logprobs)
    tensor = record.fields["logprobs"]
    tensor.dtype = pb.DTYPE_FLOAT32
    tensor.data = np.asarray([v for row in passed.logprobs for v in row], np.float32).tobytes()
    ends = np.cumsum([0, *(4 * len(row) for row in passed.logprobs)], dtype=np.int64)
    tensor.offsets = ends.tobytes()
    return bytes(message.SerializeToString())


def write_samples(samples: Sequence[Sampled], prompt: Sequence[float] | None) -> bytes:
    """Completions, and the prompt's log-probabilities if asked for; NaN for its first token."""
    message = pb.SampleResponse()
    for sampled in samples:
        sequence = message.sequences.add()
        stop, length = pb.STOP_REASON_STOP, pb.STOP_REASON_LENGTH
        sequence.stop_reason = stop if sampled.is_stopped else length
        sequence.tokens = np.asarray(sampled.tokens, np.int32).tobytes()
        sequence.logprobs = np.asarray(sampled.logprobs, np.float32).tobytes()
    if prompt is not None:
        message.prompt_logprobs = np.asarray(prompt, np.float32).tobytes()
    return bytes(message.SerializeToString())


def stops_of(params: Mapping[str, Any]) -> tuple[tuple[str, ...], frozenset[int]]:
    """Strings and token ids that end a sample, beside the end-of-turn token.

    Raises ConfigurationError for an empty list, which asks to go on behind that token.
    """
    stop = params.get("stop")
    if stop is None:
        return (), frozenset()
    each = [stop] if isinstance(stop, str) else list(stop)
    if not each:
        raise ConfigurationError("stop: an empty list (no end at all) is not served; leave it out")
    texts = tuple(one for one in each if isinstance(one, str))
    return texts, frozenset(int(one) for one in each if not isinstance(one, str))


def cut_at(result: SampleResult, stops: frozenset[int]) -> Sampled:
    """A sample to its first stop token: the beginning of a sample is a sample."""
    n = len(result.token_ids)
    length = next((i + 1 for i, token in enumerate(result.token_ids) if token in stops), n)
    return Sampled(
        tuple(result.token_ids[:length]),
        tuple(result.sampling_logprobs[:length]),
        length < n or result.finish_reason == "stop" or result.token_ids[-1] in stops,
    )


def tokens_of_prompt(prompt: Mapping[str, Any]) -> list[int]:
    """Of the JSON form of a prompt. Raises ConfigurationError for other chunks than text."""
    tokens: list[int] = []
    for chunk in prompt.get("chunks", ()):
        if "tokens" not in chunk:
            raise ConfigurationError("prompt: only chunks of text tokens are served")
        tokens += [int(token) for token in chunk["tokens"]]
    return tokens


def _tokens(chunk: Any) -> list[int]:
    if not chunk.HasField("encoded_text"):
        raise ConfigurationError("model_input: only chunks of text tokens are served")
    found: list[int] = np.frombuffer(chunk.encoded_text.tokens, np.int32).tolist()
    return found


def _tensor(tensor: Any) -> tuple[float, ...]:
    if tensor.HasField("sparse_csr"):
        raise ConfigurationError("loss_fn_inputs: sparse tensors are not served")
    dtype = np.int64 if tensor.dtype == pb.DTYPE_INT64 else np.float32
    return tuple(np.frombuffer(tensor.dense, dtype).tolist())
