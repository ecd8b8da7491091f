"""Trains a small language model on several processes: DDP, FSDP2, tensor parallel, a pipeline.

    torchrun --nproc-per-node 2 examples/distributed.py --how ddp fsdp tensor pipeline

Each way trains the same model on the same random text, in eager PyTorch and compiled, and prints
the losses of both. The functions show what to compile for each; docs/distributed.md says why.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

WORDS, WIDTH, LENGTH, BATCH = 64, 32, 16, 8


class Block(nn.Module):
    """Causal attention and a feed-forward network."""

    def __init__(self, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        # Under tensor parallelism each process has some of the heads.
        q, k, v = (
            layer(normed).unflatten(-1, (-1, WIDTH // self.heads)).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    """A language model; a stage of a pipeline has some of its layers."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.words: nn.Module | None = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleDict({str(i): Block() for i in range(layers)})
        self.head: nn.Module | None = nn.Linear(WIDTH, WORDS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x if self.words is None else self.words(x)
        for layer in self.layers.values():
            x = layer(x)
        return x if self.head is None else self.head(x)


def loss_of(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def texts(steps: int, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, WORDS, (BATCH, LENGTH), generator=generator) for _ in range(steps)]


def train(model: nn.Module, batches: list[torch.Tensor]) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for tokens in batches:
        loss = loss_of(model(tokens), tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def ddp(compiled: bool, mesh: DeviceMesh, steps: int) -> list[float]:
    """Each process has the model and a part of the batch: compile the model, then wrap it."""
    model = Model()
    if compiled:
        model.compile(backend="max")
    wrapped = nn.parallel.DistributedDataParallel(model)
    return train(wrapped, texts(steps, seed=dist.get_rank()))


def fsdp(compiled: bool, mesh: DeviceMesh, steps: int) -> list[float]:
    """Each process has a part of every weight: compile the blocks, then shard them."""
    from torch.distributed.fsdp import fully_shard

    model = Model()
    for layer in model.layers.values():
        if compiled:
            layer.compile(backend="max")
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return train(model, texts(steps, seed=dist.get_rank()))


def tensor(compiled: bool, mesh: DeviceMesh, steps: int) -> list[float]:
    """Each process computes some of the features: distribute the layers, then compile the model."""
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    model = Model()
    plan = {name: ColwiseParallel() for name in ("q", "k", "v", "up")}
    plan |= {name: RowwiseParallel() for name in ("out", "down")}
    for layer in model.layers.values():
        parallelize_module(layer, mesh, plan)
    if compiled:
        model.compile(backend="max")
    return train(model, texts(steps, seed=0))


def pipeline(compiled: bool, mesh: DeviceMesh, steps: int) -> list[float]:
    """Each process has some of the layers: compile its stage. The last one knows the losses."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    rank, world = dist.get_rank(), dist.get_world_size()
    model = Model(layers=world)
    for name in list(model.layers):
        if name != str(rank):
            del model.layers[name]
    if rank > 0:
        model.words = None
    if rank < world - 1:
        model.head = None
    if compiled:
        model.compile(backend="max")
    stage = PipelineStage(model, rank, world, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=loss_of)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    means = []
    for tokens in texts(steps, seed=0):
        losses: list[torch.Tensor] = []
        if rank == 0:
            schedule.step(tokens)
        elif rank == world - 1:
            schedule.step(target=tokens, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        means.append(torch.stack(losses).detach().mean().item() if losses else 0.0)
    return means


def checkpoint(compiled: bool, mesh: DeviceMesh, steps: int) -> list[float]:
    """DDP, saved half way by ``torch.distributed.checkpoint`` and loaded into a new model."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

    batches, losses = texts(steps, seed=dist.get_rank()), []
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(folder)
    for half in (batches[: steps // 2], batches[steps // 2 :]):
        model = Model()
        if compiled:
            model.compile(backend="max")
        wrapped = nn.parallel.DistributedDataParallel(model)
        state = get_model_state_dict(wrapped)
        if losses:
            dcp.load(state, checkpoint_id=folder[0])
            set_model_state_dict(wrapped, state)
        losses += train(wrapped, half)
        if len(losses) < steps:
            dcp.save(state, checkpoint_id=folder[0])
    return losses


WAYS: dict[str, Callable[[bool, DeviceMesh, int], list[float]]] = {
    "ddp": ddp,
    "fsdp": fsdp,
    "tensor": tensor,
    "pipeline": pipeline,
    "checkpoint": checkpoint,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--how", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--steps", type=int, default=6)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // dist.get_world_size()))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for name in arguments.how:
        found = {}
        for compiled in (False, True):
            torch.manual_seed(0)
            start = time.perf_counter()
            found[compiled] = WAYS[name](compiled, mesh, arguments.steps)
            seconds = time.perf_counter() - start
            if dist.get_rank() == dist.get_world_size() - 1:
                losses = " ".join(f"{loss:.6f}" for loss in found[compiled])
                print(f"{name:10} {'max' if compiled else 'eager':5} {seconds:6.2f} s  {losses}")
        torch.testing.assert_close(found[True], found[False], rtol=0, atol=1e-5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
