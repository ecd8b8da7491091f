"""Weights of convolutions that are packed once, before any call: in the panels of `products.mojo` or
the transformed ones of `winograd.mojo`."""

from ..core.memory import Address

# Numbers before the panels: what was made, and into how many parts the outputs of a group are cut.
comptime HEAD = 16
# What was made: nothing, panels of weights as they are, or of transformed ones.
comptime NOTHING = 0
comptime PANELS = 1
comptime TRANSFORMED = 2
# Numbers after each panel: a vector that is written past its end.
comptime BEHIND = 16


@fieldwise_init
struct Packed[dtype: DType](TrivialRegisterPassable):
    """Packed weights at an address, or none at 0."""

    var address: Int

    @always_inline
    def _head(self) -> Address[Self.dtype]:
        return Address[Self.dtype](unsafe_from_address=self.address)

    @always_inline
    def made(self) -> Int:
        """What was made."""
        return NOTHING if self.address == 0 else Int(self._head()[unsafe_offset=0])

    @always_inline
    def cuts(self) -> Int:
        """Into how many parts the outputs of a group are cut, of panels of weights as they are."""
        return Int(self._head()[unsafe_offset=1])

    @always_inline
    def panels(self) -> Address[Self.dtype]:
        """Where the panels begin."""
        return self._head().unsafe_offset(HEAD)

    @always_inline
    def tell(self, made: Int, cuts: Int):
        """Says what was made."""
        self._head()[unsafe_offset=0] = Scalar[Self.dtype](made)
        self._head()[unsafe_offset=1] = Scalar[Self.dtype](cuts)
