"""Train the embedded model: a Qwen3 transformer of about 0.65M parameters, float32, on two CPU cores."""

import json
import math
import time
from pathlib import Path
from typing import Any

from midtrace.embedded.corpus import VOCABULARY, Document, Writer, train_tokenizer

SEED = 20261130
ARCHITECTURE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 2048,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}
TOKENS_PER_STEP = 12_000
PEAK_RATE = 3e-3
WARMUP = 100
STEPS = 3400
# Qwen3's chat format without tools: the roles, and the reasoning of earlier turns left out.
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "(message['content'].split('</think>')[-1].lstrip('\\n') if message['role'] == 'assistant' else message['content']) + "
    "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{% if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}"
)


def batches(writer: Writer, tokens: int):
    """Batches of documents of about equal length, without end: a pool of documents is sorted, sliced, and its slices are shuffled."""
    while True:
        pool = sorted((writer.draw() for _ in range(2048)), key=lambda d: len(d.ids))
        slices: list[list[Document]] = [[]]
        for document in pool:
            if (len(slices[-1]) + 1) * len(document.ids) > tokens:
                slices.append([])
            slices[-1].append(document)
        slices = [s for s in slices if len(s) * len(s[-1].ids) > tokens // 2]
        writer.rng.shuffle(slices)
        yield from slices


def learning_rate(step: int, steps: int) -> float:
    """Linear warm-up, then a cosine to a twentieth of the peak."""
    if step < WARMUP:
        return PEAK_RATE * (step + 1) / WARMUP
    share = (step - WARMUP) / max(1, steps - WARMUP)
    return PEAK_RATE * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * share)))


def train(folder: Path, steps: int, seed: int = SEED, report=print) -> dict:
    """Train tokenizer and model and write them as a Transformers folder.

    Parameters
    ----------
    folder
        Output folder: ``config.json``, ``model.safetensors``, ``tokenizer.json``, ``tokenizer_config.json``, ``training.json``.
    steps
        Optimiser steps of about ``TOKENS_PER_STEP`` positions each.
    seed
        Seed of weights, tokenizer corpus and documents.
    report
        Called with a progress line every 50 steps.

    Returns
    -------
    dict
        What ``training.json`` holds: seed, steps, tokens, wall and CPU seconds (all threads), parameters, loss by step.
    """
    import torch
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    tokenizer = train_tokenizer(seed)
    writer = Writer(tokenizer, seed)
    ids = writer.ids
    config = Qwen3Config(**ARCHITECTURE, eos_token_id=ids["<|im_end|>"], pad_token_id=ids["<|endoftext|>"], bos_token_id=None)
    config.vocab_size = tokenizer.get_vocab_size()
    model = Qwen3ForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    source = batches(writer, TOKENS_PER_STEP)
    history, tokens, started = [], 0, time.time()
    running = 0.0
    for step in range(steps):
        documents = next(source)
        width = max(len(d.ids) for d in documents)
        inputs = torch.full((len(documents), width), ids["<|endoftext|>"])
        weights = torch.zeros((len(documents), width))
        for row, document in enumerate(documents):
            inputs[row, : len(document.ids)] = torch.tensor(document.ids)
            weights[row, : len(document.ids)] = torch.tensor(document.weights)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps)
        # Right padding needs no mask under causal attention: no real token looks at it.
        hidden = model.model(input_ids=inputs).last_hidden_state[:, :-1]
        kept = weights[:, 1:] > 0
        logits = model.lm_head(hidden[kept])
        losses = torch.nn.functional.cross_entropy(logits, inputs[:, 1:][kept], reduction="none")
        loss = (losses * weights[:, 1:][kept]).sum() / weights[:, 1:].sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        tokens += inputs.numel()
        running = loss.item() if step == 0 else 0.98 * running + 0.02 * loss.item()
        if (step + 1) % 50 == 0 or step + 1 == steps:
            history.append([step + 1, round(running, 4)])
            seconds = time.time() - started
            left = seconds / (step + 1) * (steps - step - 1)
            report(f"step {step + 1}/{steps}  loss {running:.4f}  {tokens / seconds:,.0f} tokens/s  {left / 60:.1f} min left")
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    wrapped.chat_template = CHAT_TEMPLATE
    wrapped.save_pretrained(folder)
    facts = {
        "seed": seed,
        "steps": steps,
        "tokens": tokens,
        "seconds": round(time.time() - started),
        "cpu_seconds": round(time.process_time()),
        "parameters": sum(p.numel() for p in model.parameters()),
        "loss": history,
    }
    (folder / "training.json").write_text(json.dumps(facts, indent=1) + "\n")
    return facts
