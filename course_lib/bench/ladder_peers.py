"""What others train on the same documents with: transformers' Llama, and a GPT as teaching code writes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from ..packing import NO_TARGET, pack
from ..training import adamw, choose_precision
from .ladder_rungs import LEARNING_RATE, RUNGS, Trainer
from .ladder_workload import Batch, Workload, vocab_size
from .packed import PaddedBatch

TRANSFORMERS, TEACHING = "transformers' Llama", "teaching GPT"


class TeachingGPT(nn.Module):
    """GPT-2 in one screen, after nanoGPT's plan: one product for query, key and value, PyTorch's kernel, GELU.

    Layer norms without a bias, learned positions, the head tied to the embedding: the parameters of rung 0.
    """

    def __init__(self, workload: Workload, vocab: int) -> None:
        super().__init__()
        self.embed, self.places = (
            nn.Embedding(vocab, workload.width),
            nn.Embedding(workload.cut, workload.width),
        )
        self.blocks = nn.ModuleList(TeachingBlock(workload) for _ in range(workload.layers))
        self.norm = nn.LayerNorm(workload.width, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(
        self, tokens: Int64[Tensor, "batch length"], targets: Int64[Tensor, "batch length"]
    ) -> Float[Tensor, ""]:
        """The mean cross-entropy of ``targets``, in nats; -100 is none."""
        x = self.embed(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.embed.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=NO_TARGET)


class TeachingBlock(nn.Module):
    def __init__(self, workload: Workload) -> None:
        super().__init__()
        width = workload.width
        self.heads = workload.heads
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Float[Tensor, "batch length width"]) -> Float[Tensor, "batch length width"]:
        heads = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # each [batch, heads, length, head_dim]
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def llama(workload: Workload) -> nn.Module:
    """transformers' LlamaForCausalLM of the top rung's sizes: grouped queries, SwiGLU, tied head, SDPA."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocab_size(),
        hidden_size=workload.width,
        intermediate_size=RUNGS[-1].config(workload).hidden_width,
        num_hidden_layers=workload.layers,
        num_attention_heads=workload.heads,
        num_key_value_heads=workload.kv_heads,
        max_position_embeddings=workload.cut,
        tie_word_embeddings=True,
    )
    config._attn_implementation = "sdpa"
    return LlamaForCausalLM(config)


def peer(
    name: str, workload: Workload, batches: Sequence[Batch], *, device: str = "cpu", precision: str = "auto"
) -> Trainer:
    """A peer ready for its first step: padded to the longest document, under autocast, as its users train it.

    Llama gets the attention mask that a tokenizer makes and the fused AdamW that transformers' Trainer takes unless
    told otherwise; the teaching GPT needs no mask, as padding lies on the right, and takes fused AdamW on a GPU.
    Raises ImportError where transformers is not installed.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = llama(workload) if name == TRANSFORMERS else TeachingGPT(workload, vocab_size())
    model = model.to(device).train()
    loss_of: Callable[[Batch], Tensor] = {TRANSFORMERS: _llama_loss, TEACHING: _teaching_loss}[name](
        model, device
    )
    fused = True if name == TRANSFORMERS or device == "cuda" else None
    optimizer = adamw(model, LEARNING_RATE, fused=fused)
    return Trainer(name, model, optimizer, loss_of, batches, choose_precision(device, precision))


def _llama_loss(model: Any, device: str) -> Callable[[Batch], Tensor]:
    def loss_of(batch: Batch) -> Tensor:
        padded = PaddedBatch.of(pack(batch).to(device))
        labels = padded.tokens.masked_fill(padded.real == 0, NO_TARGET)  # shifted by the model
        return model(input_ids=padded.tokens, attention_mask=padded.real, labels=labels, use_cache=False).loss

    return loss_of


def _teaching_loss(model: Any, device: str) -> Callable[[Batch], Tensor]:
    def loss_of(batch: Batch) -> Tensor:
        padded = PaddedBatch.of(pack(batch).to(device))
        return model(padded.tokens, padded.targets)

    return loss_of
