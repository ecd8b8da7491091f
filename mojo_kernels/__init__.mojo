"""The kernels that MAX lacks."""

from .attention.forward import *
from .attention.backward import *
from .indexing.concatenation import *
from .convolution.forward import *
from .reduction.cumsum import *
from .indexing.gather import *
from .gemm.matmul import *
from .indexing.lookup import *
from .indexing.masks import *
from .normalization.layer_norm import *
from .normalization.layer_norm_backward import *
from .pooling.forward import *
from .reduction.positions import *
from .reduction.reductions import *
from .reduction.scan import *
from .normalization.softmax import *
from .indexing.strided import *
