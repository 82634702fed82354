"""The Tinker protocol: our own trainer served over it, and jobs that train on servers of it.

Served:
- `engine`       models in training, the verbs and the losses, as plain sums (torch)
- `graph`        a client's traced loss, from what its graph may call
- `wire`         bodies of requests and answers; needs the protobuf classes of the `tinker` SDK
- `server`       HTTP on loopback: `python -m training.tinker.server --model DIR`

Used (beside `backends.tinker`, the session of a job):
- `connection`   a client, and waits that end
- `conformance`  what a server computes, measured before any training
- `routes`       which way of computing ECHO a job takes; pure
- `data`         rows and streams as the SDK's data
- `sampler`      weights there behind the interface of our own sampler
- `bridge`       that sampler as a process: `python -m training.tinker.bridge`

The SDK is asked for here and in that session alone, and is no dependency of the rest.
"""
