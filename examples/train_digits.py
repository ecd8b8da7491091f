"""A convolutional network learns to read handwritten digits, compiled by MAX.

uv run --with scikit-learn examples/train_digits.py [EPOCHS]

The 1,797 images come with scikit-learn; nothing is downloaded. Prints the loss of each epoch and
the share of unseen images that it reads rightly, and exits with 1 if that is below 97 % after the
default number of epochs.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

from torch_max_backend import max_backend

BATCH = 64
EPOCHS = 20
WANTED = 0.97


def network() -> nn.Module:
    """Classifies ``[batch, 1, 8, 8]`` images."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Dropout(0.25), nn.Flatten(), nn.Linear(64 * 4 * 4, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def data() -> tuple[Tensor, Tensor]:
    """All images, from 0 to 1, in random order, and what they show."""
    digits = load_digits()
    order = torch.randperm(len(digits.target))
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    return images[order], torch.tensor(digits.target)[order]


def main(epochs: int) -> int:
    torch.manual_seed(0)
    images, labels = data()
    seen = len(labels) * 4 // 5
    model = network()
    compiled = torch.compile(model, backend=max_backend)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(epochs):
        start, total = time.perf_counter(), 0.0
        # Batches of one size: a rest would be compiled anew.
        batches = torch.randperm(seen)[: seen // BATCH * BATCH].view(-1, BATCH)
        for batch in batches:
            loss = F.cross_entropy(compiled(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        spent = time.perf_counter() - start
        print(f"epoch {epoch + 1:2}: loss {total / len(batches):.4f}, {spent:.1f} s")
    model.eval()
    with torch.no_grad():
        right = compiled(images[seen:]).argmax(1) == labels[seen:]
    accuracy = right.float().mean().item()
    print(f"{accuracy:.1%} of {len(right)} unseen images are read rightly")
    return int(epochs == EPOCHS and accuracy < WANTED)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else EPOCHS))
