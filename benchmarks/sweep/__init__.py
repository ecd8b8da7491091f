"""Every architecture of transformers, timm and torchvision, small, compiled and compared."""
