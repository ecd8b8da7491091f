"""Small models of further packages: "PACKAGE/MODEL". Those that are not installed are left out.

    uv run --with segmentation-models-pytorch --with monai --with kornia --with torch-geometric \
        --with gpytorch --with sentence-transformers --with x-transformers --with vit-pytorch \
        --with open-clip-torch --with e3nn python -m benchmarks.sweep
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

Made = tuple[nn.Module, dict[str, Any]]


def _of(path: str, **settings: Any) -> nn.Module:
    """A class or function, such as "monai.networks.nets:UNet", called."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)(**settings)


class _Positional(nn.Module):
    """A model that is called with its arguments by position, named ``x0``, ``x1``, ..."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x0: Any, x1: Any = None, x2: Any = None) -> Any:
        return self.model(*(x for x in (x0, x1, x2) if x is not None))


def _called(model: nn.Module, *arguments: Any) -> Made:
    return _Positional(model), {f"x{i}": a for i, a in enumerate(arguments)}


def _segmentation(kind: str) -> Made:
    settings = {"encoder_name": "resnet18", "encoder_weights": None, "classes": 3}
    if kind in ("DPT",):
        settings["encoder_name"] = "tu-vit_tiny_patch16_224.augreg_in21k"
        return _called(_of(f"segmentation_models_pytorch:{kind}", **settings), _images(224))
    if kind == "Segformer":
        settings["encoder_name"] = "mit_b0"
    if kind == "PAN":
        return _called(_of(f"segmentation_models_pytorch:{kind}", **settings), _images(128))
    return _called(_of(f"segmentation_models_pytorch:{kind}", **settings), _images(64))


def _images(size: int, channels: int = 3) -> Tensor:
    return torch.randn(2, channels, size, size)


def _volume(*shape: int) -> Tensor:
    return torch.randn(1, *shape)


_NETS = "monai.networks.nets"
_MEDICAL: Mapping[str, Callable[[], Made]] = {
    "UNet": lambda: _called(
        _of(
            f"{_NETS}:UNet", spatial_dims=3, in_channels=1, out_channels=2, channels=(4, 8, 16),
            strides=(2, 2), num_res_units=1,
        ),
        _volume(1, 16, 16, 16),
    ),
    "BasicUNet": lambda: _called(
        _of(
            f"{_NETS}:BasicUNet", spatial_dims=3, in_channels=1, out_channels=2,
            features=(4, 4, 8, 8, 16, 4),
        ),
        _volume(1, 32, 32, 32),
    ),
    "DynUNet": lambda: _called(
        _of(
            f"{_NETS}:DynUNet", spatial_dims=3, in_channels=1, out_channels=2,
            kernel_size=[3, 3, 3], strides=[1, 2, 2], upsample_kernel_size=[2, 2],
            filters=[4, 8, 16],
        ),
        _volume(1, 16, 16, 16),
    ),
    "AttentionUnet": lambda: _called(
        _of(
            f"{_NETS}:AttentionUnet", spatial_dims=2, in_channels=1, out_channels=2,
            channels=(4, 8, 16), strides=(2, 2),
        ),
        _volume(1, 32, 32),
    ),
    "VNet": lambda: _called(_of(f"{_NETS}:VNet"), _volume(1, 32, 32, 32)),
    "SegResNet": lambda: _called(
        _of(f"{_NETS}:SegResNet", spatial_dims=3, init_filters=8, in_channels=1, out_channels=2),
        _volume(1, 16, 16, 16),
    ),
    "HighResNet": lambda: _called(
        _of(f"{_NETS}:HighResNet", spatial_dims=3, in_channels=1, out_channels=2),
        _volume(1, 12, 12, 12),
    ),
    "UNETR": lambda: _called(
        _of(
            f"{_NETS}:UNETR", in_channels=1, out_channels=2, img_size=(32, 32, 32), feature_size=8,
            hidden_size=48, mlp_dim=96, num_heads=4,
        ),
        _volume(1, 32, 32, 32),
    ),
    "SwinUNETR": lambda: _called(
        _of(f"{_NETS}:SwinUNETR", in_channels=1, out_channels=2, feature_size=12),
        _volume(1, 64, 64, 64),
    ),
    "ViT": lambda: _called(
        _of(
            f"{_NETS}:ViT", in_channels=1, img_size=(32, 32, 32), patch_size=(16, 16, 16),
            hidden_size=48, mlp_dim=96, num_layers=2, num_heads=4, classification=True,
        ),
        _volume(1, 32, 32, 32),
    ),
    "DenseNet121": lambda: _called(
        _of(f"{_NETS}:DenseNet121", spatial_dims=3, in_channels=1, out_channels=2),
        _volume(1, 32, 32, 32),
    ),
    "ResNet": lambda: _called(
        _of(f"{_NETS}:resnet18", spatial_dims=3, n_input_channels=1, num_classes=2),
        _volume(1, 32, 32, 32),
    ),
    "AutoEncoder": lambda: _called(
        _of(
            f"{_NETS}:AutoEncoder", spatial_dims=3, in_channels=1, out_channels=1,
            channels=(4, 8), strides=(2, 2),
        ),
        _volume(1, 16, 16, 16),
    ),
    "MILModel": lambda: _called(
        _of(f"{_NETS}:MILModel", num_classes=2, pretrained=False, mil_mode="att"),
        torch.randn(1, 2, 3, 64, 64),
    ),
}  # fmt: skip


class _OverEdges(nn.Module):
    """Two layers of a graph network."""

    def __init__(self, kind: str, **settings: Any) -> None:
        super().__init__()
        layer = getattr(importlib.import_module("torch_geometric.nn"), kind)
        self.first, self.second = layer(8, 16, **settings), layer(16, 4, **settings)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.second(self.first(x, edges).relu(), edges)


def _edges(kind: str) -> Made:
    model = _OverEdges(kind)
    return model, {"x": torch.randn(20, 8), "edges": torch.randint(0, 20, (2, 60))}


def _isomorphism() -> Made:
    layer = importlib.import_module("torch_geometric.nn")
    inside = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    return _called(layer.GINConv(inside), torch.randn(20, 8), torch.randint(0, 20, (2, 60)))


class _Kernel(nn.Module):
    """What a Gaussian process computes of two sets of points."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        kernels = importlib.import_module("gpytorch.kernels")
        self.kernel = kernels.ScaleKernel(getattr(kernels, kind)())

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.kernel(x, y).to_dense()


def _points(kind: str) -> Made:
    return _Kernel(kind), {"x": torch.randn(30, 4), "y": torch.randn(20, 4)}


def _sentences(pooling: str) -> Made:
    import transformers

    models = importlib.import_module("sentence_transformers.models")
    config = transformers.BertConfig(
        vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=128,
    )  # fmt: skip

    class Sentences(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = transformers.BertModel(config)
            self.pooling = models.Pooling(64, pooling)

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            words = self.bert(input_ids, attention_mask).last_hidden_state
            found = {"token_embeddings": words, "attention_mask": attention_mask}
            return self.pooling(found)["sentence_embedding"]

    mask = (torch.arange(12) < torch.tensor([[12], [7]])).long()
    return Sentences(), {"input_ids": torch.randint(0, 100, (2, 12)), "attention_mask": mask}


def _x_transformer(**settings: Any) -> Made:
    package = importlib.import_module("x_transformers")
    layers = package.Decoder(dim=64, depth=2, heads=4, **settings)
    model = package.TransformerWrapper(num_tokens=100, max_seq_len=64, attn_layers=layers)
    return _called(model, torch.randint(0, 100, (2, 32)))


_VIT: Mapping[str, Any] = {
    "image_size": 64, "patch_size": 16, "num_classes": 10, "dim": 64, "depth": 2, "heads": 4,
    "mlp_dim": 128,
}  # fmt: skip


def _open_clip() -> Made:
    package = importlib.import_module("open_clip.model")
    model = package.CLIP(
        32,
        {"image_size": 32, "layers": 2, "width": 64, "head_width": 16, "patch_size": 8},
        {"context_length": 16, "vocab_size": 100, "width": 64, "heads": 4, "layers": 2},
    )
    return _called(model, _images(32), torch.randint(0, 100, (2, 16)))


def _sounds(path: str, *arguments: Any, **settings: Any) -> Callable[[], Made]:
    return lambda: _called(_of(f"torchaudio.models:{path}", **settings), *arguments)


def _tensor_product() -> Made:
    package = importlib.import_module("e3nn.o3")
    product = package.FullyConnectedTensorProduct("4x0e + 4x1o", "0e + 1o + 2e", "4x0e + 4x1o")
    return _called(product, torch.randn(10, 16), torch.randn(10, 9))


_ALL: Mapping[str, Mapping[str, Callable[[], Made]]] = {
    "segmentation_models_pytorch": {
        kind: lambda kind=kind: _segmentation(kind)
        for kind in (
            "Unet", "UnetPlusPlus", "MAnet", "Linknet", "FPN", "PSPNet", "PAN", "DeepLabV3",
            "DeepLabV3Plus", "UPerNet", "Segformer", "DPT",
        )
    },
    "monai": _MEDICAL,
    "kornia": {
        **{
            kind: lambda kind=kind: _called(
                _of(f"kornia.feature:{kind}", pretrained=False), torch.rand(2, 1, 32, 32)
            )
            for kind in ("HardNet", "SOSNet", "TFeat")
        },
        "SIFTDescriptor": lambda: _called(
            _of("kornia.feature:SIFTDescriptor", patch_size=32), torch.rand(2, 1, 32, 32)
        ),
        "Canny": lambda: _called(_of("kornia.filters:Canny"), torch.rand(2, 3, 48, 48)),
        "GaussianBlur2d": lambda: _called(
            _of("kornia.filters:GaussianBlur2d", kernel_size=(5, 5), sigma=(1.5, 1.5)),
            torch.rand(2, 3, 48, 48),
        ),
        "SSIM": lambda: _called(
            _of("kornia.metrics:SSIM", window_size=5), torch.rand(2, 3, 32, 32),
            torch.rand(2, 3, 32, 32),
        ),
        "RgbToLab": lambda: _called(_of("kornia.color:RgbToLab"), torch.rand(2, 3, 32, 32)),
    },
    "torch_geometric": {
        kind: lambda kind=kind: _edges(kind)
        for kind in (
            "GCNConv", "GATConv", "GATv2Conv", "SAGEConv", "GraphConv", "TransformerConv",
            "TAGConv",
        )
    } | {"GINConv": _isomorphism},
    "gpytorch": {
        kind: lambda kind=kind: _points(kind)
        for kind in ("RBFKernel", "MaternKernel", "PeriodicKernel", "RQKernel", "LinearKernel")
    },
    "sentence_transformers": {
        kind: lambda kind=kind: _sentences(kind)
        for kind in ("mean", "cls", "max", "weightedmean")
    },
    "x_transformers": {
        "decoder": _x_transformer,
        "rotary": lambda: _x_transformer(rotary_pos_emb=True, ff_glu=True),
        "alibi": lambda: _x_transformer(alibi_pos_bias=True, alibi_num_heads=2),
        "grouped": lambda: _x_transformer(attn_kv_heads=2, use_rmsnorm=True),
    },
    "vit_pytorch": {
        "ViT": lambda: _called(_of("vit_pytorch:ViT", **_VIT), _images(64)),
        "SimpleViT": lambda: _called(_of("vit_pytorch:SimpleViT", **_VIT), _images(64)),
        "DeepViT": lambda: _called(_of("vit_pytorch.deepvit:DeepViT", **_VIT), _images(64)),
        "CCT": lambda: _called(
            _of(
                "vit_pytorch.cct:CCT", img_size=(64, 64), embedding_dim=64, n_conv_layers=2,
                kernel_size=7, stride=2, padding=3, num_layers=2, num_heads=2, num_classes=10,
            ),
            _images(64),
        ),
    },
    "open_clip": {"CLIP": _open_clip},
    "torchaudio": {
        "ConvTasNet": _sounds(
            "ConvTasNet", torch.randn(2, 1, 800), num_sources=2, enc_kernel_size=16, enc_num_feats=
            16, msk_num_feats=8, msk_num_hidden_feats=16, msk_num_layers=2, msk_num_stacks=2,
        ),
        "DeepSpeech": _sounds("DeepSpeech", torch.randn(2, 1, 20, 40), n_feature=40, n_hidden=32),
        "Wav2Letter": _sounds("Wav2Letter", torch.randn(2, 1, 1600), num_classes=20),
        "Conformer": _sounds(
            "Conformer", torch.randn(2, 30, 40), torch.tensor([30, 22]), input_dim=40, num_heads=4,
            ffn_dim=64, num_layers=2, depthwise_conv_kernel_size=7,
        ),
    },
    "e3nn": {"FullyConnectedTensorProduct": _tensor_product},
}  # fmt: skip


def names() -> Iterator[str]:
    """ "monai/UNet", ..., of the packages that are installed."""
    for package, models in _ALL.items():
        if importlib.util.find_spec(package) is not None:
            yield from (f"{package}/{kind}" for kind in models)


def model_of(name: str) -> Made:
    """A model with random weights, and arguments that it takes."""
    package, _, kind = name.partition("/")
    torch.manual_seed(0)
    model, arguments = _ALL[package][kind]()
    return model.eval(), arguments
