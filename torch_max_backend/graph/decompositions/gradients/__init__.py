"""Gradients that torch computes by an operator of their own, as forward operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_max_backend.graph.decompositions.gradients import (
    bags,
    distance,
    elementwise,
    images,
    losses,
    segments,
)
from torch_max_backend.graph.decompositions.gradients.convolution import convolution_backward

aten = torch.ops.aten

DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten._cdist_backward.default: distance.cdist_backward,
    aten._embedding_bag_backward.default: bags.embedding_bag_backward,
    aten._embedding_bag_dense_backward.default: bags.embedding_bag_dense_backward,
    aten._embedding_bag_per_sample_weights_backward.default: bags.per_sample_weights_backward,
    aten._pdist_backward.default: distance.pdist_backward,
    aten._segment_reduce_backward.default: segments.segment_reduce_backward,
    aten._weight_norm_interface_backward.default: elementwise.weight_norm_backward,
    aten.convolution_backward.default: convolution_backward,
    aten.masked_scatter_backward.default: elementwise.masked_scatter_backward,
    aten.multi_margin_loss_backward.default: losses.multi_margin_loss_backward,
    aten.multilabel_margin_loss_backward.default: losses.multilabel_margin_loss_backward,
    aten.reflection_pad1d_backward.default: images.reflection_pad_backward,
    aten.reflection_pad2d_backward.default: images.reflection_pad_backward,
    aten.reflection_pad3d_backward.default: images.reflection_pad_backward,
    aten.replication_pad1d_backward.default: images.replication_pad_backward,
    aten.replication_pad2d_backward.default: images.replication_pad_backward,
    aten.replication_pad3d_backward.default: images.replication_pad_backward,
    aten.softshrink_backward.default: elementwise.softshrink_backward,
}
