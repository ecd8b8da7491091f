"""Blocks of models of protein structure, in plain torch: pairs of residues, triangles, frames."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus


class TriangleMultiplication(nn.Module):
    """An edge from the edges to a third residue (AlphaFold 2, supplement, algorithms 11 and 12).

    Takes and returns pairs (batch, residues, residues, features).
    """

    def __init__(self, width: int, hidden: int, outgoing: bool = True) -> None:
        super().__init__()
        self.norm, self.norm_out = nn.LayerNorm(width), nn.LayerNorm(hidden)
        self.left, self.right = nn.Linear(width, hidden), nn.Linear(width, hidden)
        self.left_gate, self.right_gate = nn.Linear(width, hidden), nn.Linear(width, hidden)
        self.gate, self.out = nn.Linear(width, width), nn.Linear(hidden, width)
        self.equation = "bikc,bjkc->bijc" if outgoing else "bkic,bkjc->bijc"

    def forward(self, pairs: Tensor) -> Tensor:
        z = self.norm(pairs)
        left = self.left(z) * self.left_gate(z).sigmoid()
        right = self.right(z) * self.right_gate(z).sigmoid()
        product = torch.einsum(self.equation, left, right)
        return self.gate(z).sigmoid() * self.out(self.norm_out(product))


class PairBiasAttention(nn.Module):
    """Attention over rows of pairs whose scores have a bias of the third edge (algorithm 13).

    Takes and returns pairs (batch, residues, residues, features).
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv, self.bias = nn.Linear(width, 3 * width), nn.Linear(width, heads, bias=False)
        self.gate, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, pairs: Tensor, mask: Tensor) -> Tensor:
        z = self.norm(pairs)
        q, k, v = self.qkv(z).unflatten(-1, (3, self.heads, -1)).permute(3, 0, 1, 4, 2, 5)
        bias = self.bias(z).permute(0, 3, 1, 2).unsqueeze(1)
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + bias
        scores = scores.masked_fill(~mask[:, None, None, None, :], -1e9)
        seen = (scores.softmax(-1) @ v).transpose(2, 3).flatten(-2)
        return self.out(seen * self.gate(z).sigmoid())


class OuterProductMean(nn.Module):
    """Pairs from an alignment (algorithm 10).

    Takes (batch, sequences, residues, features), returns pairs (batch, residues, residues, pairs).
    """

    def __init__(self, width: int, hidden: int, pairs: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.left, self.right = nn.Linear(width, hidden), nn.Linear(width, hidden)
        self.out = nn.Linear(hidden * hidden, pairs)

    def forward(self, alignment: Tensor) -> Tensor:
        m = self.norm(alignment)
        outer = torch.einsum("bsic,bsjd->bijcd", self.left(m), self.right(m))
        return self.out(outer.flatten(-2)) / alignment.shape[1]


class Transition(nn.Module):
    """A feed-forward network with a gate."""

    def __init__(self, width: int, factor: int = 4) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.gate = nn.Linear(width, factor * width), nn.Linear(width, factor * width)
        self.down = nn.Linear(factor * width, width)

    def forward(self, x: Tensor) -> Tensor:
        z = self.norm(x)
        return self.down(nn.functional.silu(self.gate(z)) * self.up(z))


class InvariantPointAttention(nn.Module):
    """Attention between frames that no common rotation or shift of them changes (algorithm 22).

    Takes residues (batch, residues, features), pairs, and frames: rotations (batch, residues, 3, 3)
    and shifts (batch, residues, 3).
    """

    def __init__(self, width: int, pairs: int, heads: int, hidden: int, points: int) -> None:
        super().__init__()
        self.heads, self.points = heads, points
        self.qkv = nn.Linear(width, 3 * heads * hidden)
        self.at = nn.Linear(width, 3 * heads * points * 3)
        self.bias = nn.Linear(pairs, heads)
        self.weights = nn.Parameter(torch.zeros(heads))
        self.out = nn.Linear(heads * (hidden + pairs + 4 * points), width)

    def forward(self, x: Tensor, pairs: Tensor, rotations: Tensor, shifts: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        local = self.at(x).unflatten(-1, (3, self.heads, self.points, 3))
        there = torch.einsum("bnij,bnthpj->bnthpi", rotations, local)
        there = there + shifts[:, :, None, None, None]
        qp, kp, vp = there.permute(2, 0, 3, 1, 4, 5)
        apart = (qp.unsqueeze(3) - kp.unsqueeze(2)).square().sum((-1, -2))
        near = softplus(self.weights)[:, None, None] * apart / (9 * self.points)
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + self.bias(pairs).permute(0, 3, 1, 2)
        seen = ((scores - near) / 3**0.5).softmax(-1)
        plain = (seen @ v).transpose(1, 2).flatten(2)
        of_pairs = torch.einsum("bhij,bijc->bihc", seen, pairs).flatten(2)
        found = torch.einsum("bhij,bhjpc->bihpc", seen, vp) - shifts[:, :, None, None]
        back = torch.einsum("bnji,bnhpj->bnhpi", rotations, found)
        lengths = (back.square().sum(-1) + 1e-8).sqrt()
        every = (plain, of_pairs, back.flatten(2), lengths.flatten(2))
        return self.out(torch.cat(every, -1))


class EquivariantLayer(nn.Module):
    """Messages between atoms, whose positions turn with the input (E(n) networks, 2021).

    Takes features (atoms, width), positions (atoms, 3) and edges (2, count).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.edge = nn.Sequential(
            nn.Linear(2 * width + 1, width), nn.SiLU(), nn.Linear(width, width)
        )
        self.node = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))
        self.shift = nn.Linear(width, 1, bias=False)

    def forward(self, x: Tensor, at: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        source, target = edges
        between = at[target] - at[source]
        length = between.square().sum(-1, keepdim=True)
        message = self.edge(torch.cat([x[target], x[source], length], -1))
        total = torch.zeros_like(x).index_add(0, target, message)
        moved = torch.zeros_like(at).index_add(0, target, between * self.shift(message).tanh())
        return x + self.node(torch.cat([x, total], -1)), at + moved


class Potential(nn.Module):
    """The energy of atoms, from their kinds (atoms,), positions (atoms, 3) and edges (2, count)."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.kinds = nn.Embedding(4, width)
        self.layers = nn.ModuleList(EquivariantLayer(width) for _ in range(2))
        self.energy = nn.Linear(width, 1)

    def forward(self, kinds: Tensor, at: Tensor, edges: Tensor) -> Tensor:
        x = self.kinds(kinds)
        for layer in self.layers:
            x, at = layer(x, at, edges)
        return self.energy(x).sum()
