"""Which of the ways to convolve a convolution takes."""

from ..core.memory import Address
from .depthwise import convolve_single_channels
from .finish import Finish
from .packed import Packed
from .planes import Shape
from .products import convolve_by_products
from .winograd import convolved_by_winograd


@always_inline
def convolve[
    dtype: DType, //
](
    op: Address[dtype],
    xp: Address[dtype],
    wp: Address[dtype],
    shape: Shape,
    finish: Finish[dtype],
    packed: Packed[dtype] = Packed[dtype](0),
):
    """A convolution of any sizes, none of which is 0; its weights may be packed already."""
    # Few outputs of a channel do not fill a tile.
    if shape.channels() == 1 and shape.per_group() < 4:
        convolve_single_channels(op, xp, wp, shape, finish)
    elif not convolved_by_winograd(op, xp, wp, shape, finish, packed):
        convolve_by_products(op, xp, wp, shape, finish, packed)
