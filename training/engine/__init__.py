"""The sampler: many rows at once on one model, with shared prefixes, reused turns and adapters.

`weights` (packed tensors of the base model), `adapters` (LoRA folders), `kv` (the rows in flight
and the prefixes), `reuse` (what can be taken over from earlier work), `forward` (one step of the
network), `sampling` (from logits to tokens), `scheduler` (the thread that joins it all); `wire`
and `api` put it on HTTP. `fleet` holds whole models beside the base; `vllm` has another server
sample behind the same door.
"""
