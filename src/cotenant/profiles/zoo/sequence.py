"""Networks over sequences: LSTM language models, translation, Transformer encoders and decoders, speech.

This module imports torch; import it only where torch is needed.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = [
    "Attention",
    "Decoder",
    "DeepSpeech2",
    "Encoder",
    "LstmLanguageModel",
    "LstmTranslator",
    "Translator",
    "vision_layer",
]


class LstmLanguageModel(nn.Module):
    """Embedding, LSTM layers, a linear layer over the vocabulary.

    Parameters
    ----------
    vocabulary, width, layers : int
    dropout : float
    """

    def __init__(self, vocabulary: int, width: int, layers: int = 2, dropout: float = 0.5) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.embed = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, layers, dropout=dropout)
        self.out = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        found = self.out(self.drop(self.lstm(self.drop(self.embed(tokens)))[0]))
        return functional.cross_entropy(found.flatten(0, 1), targets.flatten())


class LstmTranslator(nn.Module):
    """Translation with LSTMs: bidirectional encoder, decoder, Luong attention.

    Parameters
    ----------
    source, target : int
        Sizes of the vocabularies.
    width : int
    """

    def __init__(self, source: int, target: int, width: int = 512) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.2)
        self.read, self.said = nn.Embedding(source, width), nn.Embedding(target, width)
        self.encoder = nn.LSTM(width, width // 2, 1, bidirectional=True)
        self.decoder = nn.LSTM(width, width, 2, dropout=0.2)
        self.score = nn.Linear(width, width, bias=False)
        self.mix = nn.Linear(2 * width, width, bias=False)
        self.out = nn.Linear(width, target, bias=False)

    def forward(self, source: Tensor, said: Tensor, targets: Tensor) -> Tensor:
        memory = self.encoder(self.drop(self.read(source)))[0].transpose(0, 1)
        states = self.decoder(self.drop(self.said(said)))[0].transpose(0, 1)
        weights = torch.bmm(self.score(states), memory.transpose(1, 2)).softmax(-1)
        mixed = torch.tanh(self.mix(torch.cat([torch.bmm(weights, memory), states], -1)))
        return functional.cross_entropy(self.out(mixed).flatten(0, 1), targets.t().flatten())


class Attention(nn.Module):
    """Multi-head attention with three or one linear layers before it and one after.

    Parameters
    ----------
    width, heads : int
    dropout : float
        On the attention's weights.
    causal : bool
    fused : bool
        One kernel that keeps no scores (``scaled_dot_product_attention``), or each product by
        itself, as older code does.
    """

    def __init__(
        self, width: int, heads: int, *, dropout: float = 0.1, causal: bool = False, fused: bool = True
    ) -> None:
        super().__init__()
        self.heads, self.dropout, self.causal, self.fused = heads, dropout, causal, fused
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        memory = x if memory is None else memory
        q, k, v = (
            layer(t).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, t in ((self.query, x), (self.key, memory), (self.value, memory))
        )
        rate = self.dropout if self.training else 0.0
        if self.fused:
            mixed = functional.scaled_dot_product_attention(q, k, v, dropout_p=rate, is_causal=self.causal)
        else:
            scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
            if self.causal:
                mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
                scores = scores.masked_fill(mask, -1e9)
            mixed = functional.dropout(scores.softmax(-1), rate, self.training) @ v
        return self.out(mixed.transpose(1, 2).flatten(2))


class _Layer(nn.Module):
    """One layer: attention, attention to a memory if there is one, two linear layers."""

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int,
        *,
        first: bool,
        crossed: bool,
        causal: bool,
        fused: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.first = first
        self.attention = Attention(width, heads, dropout=dropout, causal=causal, fused=fused)
        self.crossed = Attention(width, heads, dropout=dropout, fused=fused) if crossed else None
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 if crossed else 2))
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.act: nn.Module = nn.ReLU() if crossed or not first else nn.GELU()
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        parts: list[Any] = [self.attention, lambda t: self.down(self.act(self.up(t)))]
        if self.crossed is not None:
            parts.insert(1, lambda t: self.crossed(t, memory))
        for norm, part in zip(self.norms, parts, strict=True):
            # Normalised before (GPT-2, ViT) or after (BERT, the first Transformer) each part.
            x = x + self.drop(part(norm(x))) if self.first else norm(x + self.drop(part(x)))
        return x


def vision_layer(width: int) -> nn.Module:
    """A layer of a vision transformer: normalised before, GELU, no dropout."""
    return _Layer(
        width, width // 64, 4 * width, first=True, crossed=False, causal=False, fused=True, dropout=0.0
    )


class Encoder(nn.Module):
    """BERT-like: embeddings, layers, a head; or over patches of an image (ViT).

    Parameters
    ----------
    vocabulary, length, width, layers, heads, hidden : int
    answers : int
        Numbers for each token (2: start and end of an answer), or 0: a classifier over the
        vocabulary (masked language model, weights shared with the embedding).
    fused : bool
    """

    def __init__(
        self,
        vocabulary: int,
        length: int,
        width: int,
        *,
        layers: int,
        heads: int,
        hidden: int,
        answers: int = 2,
        fused: bool = True,
    ) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.kinds, self.norm, self.drop = nn.Embedding(2, width), nn.LayerNorm(width), nn.Dropout(0.1)
        shape = {"first": False, "crossed": False, "causal": False, "fused": fused, "dropout": 0.1}
        self.layers = nn.ModuleList(_Layer(width, heads, hidden, **shape) for _ in range(layers))  # type: ignore[arg-type]
        for layer in self.layers:
            layer.act = nn.GELU()
        self.head = nn.Linear(width, answers or vocabulary)
        if not answers:
            self.head.weight = self.words.weight

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.places(places) + self.kinds(torch.zeros_like(tokens))
        x = self.drop(self.norm(x))
        for layer in self.layers:
            x = layer(x)
        found = self.head(x)
        if found.shape[-1] == 2:
            # SQuAD: where the answer starts and ends.
            return functional.cross_entropy(found.transpose(1, 2).flatten(0, 1), targets[:, :2].flatten())
        return functional.cross_entropy(found.flatten(0, 1), targets.flatten())


class Decoder(nn.Module):
    """GPT-2-like: embeddings, causal layers normalised before, the embedding as the head.

    Parameters
    ----------
    vocabulary, length, width, layers, heads : int
    fused : bool
    """

    def __init__(
        self, vocabulary: int, length: int, width: int, *, layers: int, heads: int, fused: bool = True
    ) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.drop, self.norm = nn.Dropout(0.1), nn.LayerNorm(width)
        shape = {"first": True, "crossed": False, "causal": True, "fused": fused, "dropout": 0.1}
        self.layers = nn.ModuleList(_Layer(width, heads, 4 * width, **shape) for _ in range(layers))  # type: ignore[arg-type]
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.drop(self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device)))
        for layer in self.layers:
            x = layer(x)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


class Translator(nn.Module):
    """The first Transformer (Vaswani and others 2017, base), one vocabulary shared by all.

    Parameters
    ----------
    vocabulary : int
    width, layers, heads, hidden : int
    """

    def __init__(
        self, vocabulary: int, width: int = 512, *, layers: int = 6, heads: int = 8, hidden: int = 2048
    ) -> None:
        super().__init__()
        self.words, self.drop = nn.Embedding(vocabulary, width), nn.Dropout(0.1)
        shape = {"first": False, "fused": False, "dropout": 0.1}
        self.encoder = nn.ModuleList(
            _Layer(width, heads, hidden, crossed=False, causal=False, **shape)  # type: ignore[arg-type]
            for _ in range(layers)
        )
        self.decoder = nn.ModuleList(
            _Layer(width, heads, hidden, crossed=True, causal=True, **shape)  # type: ignore[arg-type]
            for _ in range(layers)
        )
        self.places = nn.Parameter(torch.zeros(200, width), requires_grad=False)

    def forward(self, source: Tensor, said: Tensor, targets: Tensor) -> Tensor:
        memory, x = (self.drop(self.words(t) + self.places[: t.shape[1]]) for t in (source, said))
        for layer in self.encoder:
            memory = layer(memory)
        for layer in self.decoder:
            x = layer(x, memory)
        found = functional.linear(x, self.words.weight)
        return functional.cross_entropy(found.flatten(0, 1), targets.flatten())


class DeepSpeech2(nn.Module):
    """Deep Speech 2 (Amodei and others 2016): two convolutions, five bidirectional LSTMs, CTC.

    Parameters
    ----------
    width : int
        Of each direction of the recurrent layers.
    letters : int
    """

    def __init__(self, width: int = 1024, letters: int = 29) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(
                nn.Conv2d(1, 32, (41, 11), (2, 2), (20, 5), bias=False),
                nn.BatchNorm2d(32),
                nn.Hardtanh(0, 20, True),
            ),
            *(
                nn.Conv2d(32, 32, (21, 11), (2, 1), (10, 5), bias=False),
                nn.BatchNorm2d(32),
                nn.Hardtanh(0, 20, True),
            ),
        )
        sizes = [32 * 41, *[width] * 4]
        self.layers = nn.ModuleList(nn.LSTM(size, width, bidirectional=True) for size in sizes)
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(4))
        self.out = nn.Linear(width, letters, bias=False)

    def forward(self, sound: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        x = self.body(sound).flatten(1, 2).permute(2, 0, 1)
        for number, layer in enumerate(self.layers):
            if number:
                x = self.norms[number - 1](x.flatten(0, 1)).view_as(x)
            found = layer(x)[0]
            x = found[..., : found.shape[-1] // 2] + found[..., found.shape[-1] // 2 :]
        scores = self.out(x).log_softmax(-1)
        times = torch.full_like(lengths, scores.shape[0])
        return functional.ctc_loss(scores, targets, times, lengths)
