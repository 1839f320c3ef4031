"""The cross-entropy of a language model, without the logits of all tokens at once.

``F.cross_entropy(hidden @ head.T, targets)`` keeps a number for each token and word of the vocabulary, three times
over: logits, log-probabilities, and their gradient. With 50,000 words that is more than all else a small model
keeps. Tokens do not meet in the loss, so it can be taken of some of them at a time. With p = softmax(logits):

    loss = logsumexp(logits) - logits[target]         d logits = (p - onehot(target)) * d loss
    d hidden = d logits W           d W = d logitsᵀ hidden           d bias = sum of d logits

For a mean or a sum, d loss is one factor for all, so the forward pass makes the gradients while a chunk's logits are
at hand, and the backward only scales them. Where that factor must be known first, the backward computes the logits
once more: with ``reduction="none"``, and in fp16, in which gradients without the loss scale would underflow.
(Wijmans et al. 2024, "Cut your losses in large-vocabulary language models", go further, in one kernel.)
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.packing import NO_TARGET

CHUNK_ENTRIES = 2**24
"""Logits held at a time: 64 MiB in fp32."""
LARGEST_CHUNK = 1024
REDUCTIONS = ("mean", "sum", "none")


def chunked_cross_entropy(
    hidden: Float[Tensor, "*tokens dim"],
    head_weight: Float[Tensor, "vocab dim"],
    targets: Int[Tensor, "*tokens"],
    *,
    bias: Float[Tensor, "vocab"] | None = None,
    chunk: int | None = None,
    ignore_index: int = NO_TARGET,
    reduction: str = "mean",
) -> Float[Tensor, "..."]:
    """``F.cross_entropy(F.linear(hidden, head_weight, bias), targets)`` in nats, holding ``chunk`` tokens' logits.

    ``hidden`` [*, dim] is what the head reads, ``head_weight`` [vocab, dim] and ``bias`` [vocab] the head (tied to
    the embedding or not), ``targets`` [*] whole numbers, of which ``ignore_index`` is left out. ``reduction`` is
    "mean" over the other targets, "sum", or "none", which gives [*] with 0 where ignored. The loss is fp32 (float64
    for float64). Half inputs, and those under autocast, are multiplied in half precision; the softmax, the sums over
    the vocabulary and the gradient of the weight are accumulated in fp32. ``chunk`` defaults to what holds 2**24
    logits, at most 1,024 tokens. Gradients cannot be differentiated again
    (RuntimeError).

    Raises TypeError for targets or a chunk of no whole number and for dtypes that disagree outside of autocast;
    ValueError for shapes or devices that do not fit, a target outside the vocabulary, and a mean over no target.
    """
    _check(hidden, head_weight, targets, bias)
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction: expected one of {', '.join(map(repr, REDUCTIONS))}, got {reduction!r}.")
    dtype = _compute_dtype(hidden, head_weight, bias)
    kept = targets.flatten() != ignore_index
    count = _count_targets(targets, kept, head_weight.shape[0], ignore_index)
    if reduction == "mean" and not count:
        raise ValueError(
            f"targets: expected at least one target other than ignore_index, {ignore_index}, got {targets.numel()} "
            "tokens without any: they have no mean. Leave such a batch out, or take reduction='sum', which is 0."
        )
    size = _chunk_size(chunk, head_weight.shape[0])
    losses = _ChunkedCrossEntropy.apply(
        hidden.reshape(-1, hidden.shape[-1]),
        head_weight,
        bias,
        targets.flatten().long().masked_fill(~kept, 0),
        kept,
        dtype,
        size,
        None if reduction == "none" else 1 / count if reduction == "mean" else 1.0,
        torch.is_grad_enabled(),
    )
    return losses.view(targets.shape) if reduction == "none" else losses


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, bias, targets, kept, dtype, chunk, factor, training):
        """``factor`` times the sum of the losses, or for None the losses [n]."""
        ctx.needed = [training and need for need in ctx.needs_input_grad[:3]]
        ctx.dtype, ctx.chunk, ctx.factor = dtype, chunk, factor
        ctx.save_for_backward(hidden, weight, bias, targets, kept)
        early = any(ctx.needed) and factor is not None and dtype != torch.float16
        work = _Chunks(hidden, weight, bias, targets, kept, dtype, chunk)
        scale = torch.full_like(kept, factor, dtype=work.sum_dtype) if early else None
        losses, gradients = work.run(ctx.needed if early else [False] * 3, scale)
        ctx.gradients = gradients if early else None
        return losses if factor is None else losses.sum() * factor

    @staticmethod
    def backward(ctx, grad_out):
        if torch.is_grad_enabled():
            raise RuntimeError(
                "chunked_cross_entropy: its gradients cannot be differentiated again, as create_graph=True asks for. "
                "F.cross_entropy of all logits can."
            )
        # Raises, in PyTorch's words, where an earlier backward has freed what is needed.
        hidden, weight, bias, targets, kept = ctx.saved_tensors
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is not None:
            # They are this node's own, so they are scaled in place; a second backward (retain_graph) makes new ones.
            for gradient in gradients:
                if gradient is not None:
                    gradient.mul_(grad_out)
        else:
            work = _Chunks(hidden, weight, bias, targets, kept, ctx.dtype, ctx.chunk)
            factor = 1.0 if ctx.factor is None else ctx.factor
            _, gradients = work.run(ctx.needed, (grad_out * factor).expand(kept.shape))
        tensors = (hidden, weight, bias)
        found = (g if g is None else g.to(t.dtype) for g, t in zip(gradients, tensors, strict=True))
        return *found, None, None, None, None, None, None


class _Chunks:
    """The loss of each token, and its gradients, some tokens at a time."""

    def __init__(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        kept: Tensor,
        dtype: torch.dtype,
        chunk: int,
    ) -> None:
        self.hidden, self.bias, self.targets, self.kept = hidden, bias, targets, kept
        self.weight = weight.to(dtype)
        self.dtype, self.chunk = dtype, min(chunk, max(1, len(kept)))
        self.sum_dtype = torch.promote_types(dtype, torch.float32)

    def run(
        self, needed: list[bool], scale: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor | None, Tensor | None, Tensor | None]]:
        """The losses [n], and the gradients of hidden, weight and bias that are ``needed`` of
        ``(scale * losses).sum()``."""
        vocab, dim = self.weight.shape
        device = self.hidden.device
        losses = torch.zeros(len(self.kept), dtype=self.sum_dtype, device=device)
        # Both are used for every chunk: memory that is new each time costs a CPU more than the arithmetic.
        logits = torch.empty(self.chunk, vocab, dtype=self.dtype, device=device)
        probabilities = torch.empty(self.chunk, vocab, dtype=self.sum_dtype, device=device)
        grad_hidden = (
            torch.empty(self.hidden.shape, dtype=self.sum_dtype, device=device) if needed[0] else None
        )
        grad_weight = torch.zeros(vocab, dim, dtype=self.sum_dtype, device=device) if needed[1] else None
        grad_bias = torch.zeros(vocab, dtype=self.sum_dtype, device=device) if needed[2] else None
        with _no_autocast(device):
            for begin in range(0, len(self.kept), self.chunk):
                rows = slice(begin, min(begin + self.chunk, len(self.kept)))
                count = rows.stop - begin
                features = self.hidden[rows].to(self.dtype)
                score, p = logits[:count], probabilities[:count]
                losses[rows] = self._losses(features, rows, score, p)
                if scale is None:
                    continue
                gradient = self._gradient_of_logits(p, rows, scale)
                if grad_bias is not None:
                    grad_bias += gradient.sum(0)
                if gradient.dtype != self.dtype:
                    gradient = score.copy_(gradient)
                if grad_hidden is not None:
                    grad_hidden[rows] = gradient @ self.weight
                if grad_weight is not None:
                    _add_product(grad_weight, gradient.T, features)
        return losses, (grad_hidden, grad_weight, grad_bias)

    def _losses(self, features: Tensor, rows: slice, score: Tensor, p: Tensor) -> Tensor:
        """Those of ``rows`` [count]; leaves the logits in ``score`` and their softmax in ``p``."""
        torch.mm(features, self.weight.T, out=score)
        if self.bias is not None:
            score += self.bias.to(self.dtype)
        torch.softmax(score, -1, dtype=self.sum_dtype, out=p)
        of_target = score.gather(1, self.targets[rows, None])[:, 0].to(self.sum_dtype)
        # The softmax of the largest logit is 1 / sum(exp(logit - largest)): the sum is had without another pass of
        # exponentials, and its logarithm is exact, since that softmax is never small.
        log_sum_exp = score.amax(-1).to(self.sum_dtype) - p.amax(-1).log()
        return (log_sum_exp - of_target).masked_fill(~self.kept[rows], 0)

    def _gradient_of_logits(self, p: Tensor, rows: slice, scale: Tensor) -> Tensor:
        """(p - onehot) * scale, in place of ``p``; 0 where a token has no target, even if its p is NaN."""
        target = self.targets[rows, None]
        p.scatter_add_(1, target, torch.full_like(target, -1, dtype=p.dtype))
        p.mul_(scale[rows, None])
        return p.masked_fill_(~self.kept[rows, None], 0)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a @ b"""
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    else:
        total += a @ b


def _no_autocast(device: torch.device) -> AbstractContextManager[object]:
    known = torch.amp.is_autocast_available(device.type)  # not on "meta", for one
    return torch.autocast(device.type, enabled=False) if known else nullcontext()


def _compute_dtype(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> torch.dtype:
    device = hidden.device.type
    known = torch.amp.is_autocast_available(device)
    if known and torch.is_autocast_enabled(device) and hidden.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    for name, tensor in (("head_weight", weight), ("bias", bias)):
        if tensor is not None and tensor.dtype != hidden.dtype:
            raise TypeError(
                f"{name}: expected the dtype of hidden, {_name(hidden.dtype)}, got {_name(tensor.dtype)}. Convert one "
                "of them, or compute the loss under the autocast that made them differ."
            )
    return hidden.dtype


def _count_targets(targets: Tensor, kept: Tensor, vocab: int, ignore_index: int) -> int:
    """How many targets count. Raises ValueError for one outside the vocabulary."""
    wrong = kept & ((targets.flatten() < 0) | (targets.flatten() >= vocab))
    count, wrong_count = torch.stack((kept.sum(), wrong.sum())).tolist()
    if wrong_count:
        value = int(targets.flatten()[wrong][0])
        raise ValueError(
            f"targets: expected ids from 0 to {vocab - 1}, the vocabulary of head_weight, or ignore_index, "
            f"{ignore_index}, got {value}. Was the model made for another tokenizer?"
        )
    return count


def _chunk_size(chunk: Any, vocab: int) -> int:
    if chunk is None:
        return max(1, min(LARGEST_CHUNK, CHUNK_ENTRIES // max(1, vocab)))
    if isinstance(chunk, bool) or not isinstance(chunk, int):
        raise TypeError(f"chunk: expected a whole number of tokens, got {type(chunk).__name__} {chunk!r}.")
    if chunk < 1:
        raise ValueError(f"chunk: expected at least 1 token, got {chunk}.")
    return chunk


def _check(hidden: Any, weight: Any, targets: Any, bias: Any) -> None:
    given = {"hidden": hidden, "head_weight": weight, "targets": targets}
    if bias is not None:
        given["bias"] = bias
    for name, tensor in given.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: expected a tensor, got {type(tensor).__name__}.")
        if name != "targets" and not tensor.is_floating_point():
            raise TypeError(f"{name}: expected floating-point numbers, got {_name(tensor.dtype)}.")
        if tensor.device != hidden.device:
            raise ValueError(f"{name}: expected the device of hidden, {hidden.device}, got {tensor.device}.")
    if targets.dtype == torch.bool or targets.is_floating_point() or targets.is_complex():
        raise TypeError(
            f"targets: expected token ids, which are whole numbers, got {_name(targets.dtype)}. "
            "Probabilities as targets need F.cross_entropy."
        )
    if weight.dim() != 2 or not len(weight):
        raise ValueError(
            f"head_weight: expected [vocab, dim], a row for each word, got shape {list(weight.shape)}."
        )
    if hidden.dim() < 1 or hidden.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"hidden: expected [..., {weight.shape[1]}], the width of head_weight {list(weight.shape)}, got shape "
            f"{list(hidden.shape)}. It is what the head reads, not the logits."
        )
    if targets.shape != hidden.shape[:-1]:
        raise ValueError(
            f"targets: expected one a token, shape {list(hidden.shape[:-1])} as in hidden, got {list(targets.shape)}."
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias: expected one number a word, [{len(weight)}], got shape {list(bias.shape)}.")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
