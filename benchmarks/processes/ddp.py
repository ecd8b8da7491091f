"""Steps of GPT-2 small under DistributedDataParallel, a process of two: started by torchrun.

    torchrun --nproc-per-node 2 -m benchmarks.processes.ddp FRAMEWORK STEPS

The first process prints the milliseconds of each step after the first two, and the losses, as JSON.
"""

from __future__ import annotations

import json
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

LENGTH = 64


def main() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    framework, steps = sys.argv[1], int(sys.argv[2])
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    config = GPT2Config(use_cache=False, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)
    model = GPT2LMHeadModel(config).train()
    if framework != "eager":
        model.compile(backend=framework)
    wrapped = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    words = torch.Generator().manual_seed(dist.get_rank())
    times, losses = [], []
    start = time.perf_counter()
    for _ in range(steps + 2):
        tokens = torch.randint(0, config.vocab_size, (1, LENGTH), generator=words)
        loss = wrapped(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        dist.barrier()
        now = time.perf_counter()
        times.append(1e3 * (now - start))
        start = now
    if dist.get_rank() == 0:
        print(json.dumps({"first_ms": times[0], "step_ms": times[2:], "losses": losses}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
