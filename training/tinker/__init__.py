"""The Tinker protocol: our own trainer served over it, and the probe of servers that speak it.

- `engine`       models in training, the verbs and the losses, as plain sums (torch)
- `wire`         bodies of requests and answers; needs the protobuf classes of the `tinker` SDK
- `server`       HTTP on loopback: `python -m training.tinker.server --model DIR`
- `conformance`  which ECHO routes a server may be trusted with, before any training

The SDK is asked for here alone and is no dependency of the rest.
"""
