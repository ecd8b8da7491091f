"""Transforms of a few numbers, in registers."""

from std.utils.index import IndexList

# Those that `butterfly` knows, and that any pass may have; it knows 16 as well.
comptime RADICES = IndexList[6](8, 4, 2, 3, 5, 7)
comptime Lanes[dtype: DType, width: Int, radix: Int] = Array[SIMD[dtype, width], radix]


@always_inline
def butterfly[
    dtype: DType, width: Int, radix: Int
](mut re: Lanes[dtype, width, radix], mut im: Lanes[dtype, width, radix]):
    """The transform of `radix` numbers, in place."""
    comptime if radix == 2:
        var ar = re[0] - re[1]
        var ai = im[0] - im[1]
        re[0] = re[0] + re[1]
        im[0] = im[0] + im[1]
        re[1] = ar
        im[1] = ai
    elif radix == 3:
        comptime half_root = 0.866025403784438646763723170752936
        var sr = re[1] + re[2]
        var si = im[1] + im[2]
        var dr = (im[1] - im[2]) * Scalar[dtype](half_root)
        var di = (re[2] - re[1]) * Scalar[dtype](half_root)
        var mr = re[0] - sr * Scalar[dtype](0.5)
        var mi = im[0] - si * Scalar[dtype](0.5)
        re[0] = re[0] + sr
        im[0] = im[0] + si
        re[1] = mr + dr
        im[1] = mi + di
        re[2] = mr - dr
        im[2] = mi - di
    elif radix == 4:
        var ar = re[0] + re[2]
        var ai = im[0] + im[2]
        var br = re[0] - re[2]
        var bi = im[0] - im[2]
        var cr = re[1] + re[3]
        var ci = im[1] + im[3]
        var dr = im[1] - im[3]
        var di = re[3] - re[1]
        re[0] = ar + cr
        im[0] = ai + ci
        re[1] = br + dr
        im[1] = bi + di
        re[2] = ar - cr
        im[2] = ai - ci
        re[3] = br - dr
        im[3] = bi - di
    elif radix == 5:
        comptime c1 = 0.309016994374947424102293417182819
        comptime c2 = -0.809016994374947424102293417182819
        comptime s1 = 0.951056516295153572116439333379382
        comptime s2 = 0.587785252292473129168705954639073
        var pr = re[1] + re[4]
        var pi = im[1] + im[4]
        var qr = re[2] + re[3]
        var qi = im[2] + im[3]
        var ur = re[1] - re[4]
        var ui = im[1] - im[4]
        var vr = re[2] - re[3]
        var vi = im[2] - im[3]
        var ar = re[0] + pr * Scalar[dtype](c1) + qr * Scalar[dtype](c2)
        var ai = im[0] + pi * Scalar[dtype](c1) + qi * Scalar[dtype](c2)
        var br = re[0] + pr * Scalar[dtype](c2) + qr * Scalar[dtype](c1)
        var bi = im[0] + pi * Scalar[dtype](c2) + qi * Scalar[dtype](c1)
        var cr = ui * Scalar[dtype](s1) + vi * Scalar[dtype](s2)
        var ci = ur * Scalar[dtype](s1) + vr * Scalar[dtype](s2)
        var dr = ui * Scalar[dtype](s2) - vi * Scalar[dtype](s1)
        var di = ur * Scalar[dtype](s2) - vr * Scalar[dtype](s1)
        re[0] = re[0] + pr + qr
        im[0] = im[0] + pi + qi
        re[1] = ar + cr
        im[1] = ai - ci
        re[4] = ar - cr
        im[4] = ai + ci
        re[2] = br + dr
        im[2] = bi - di
        re[3] = br - dr
        im[3] = bi + di
    elif radix == 7:
        _seven[dtype, width, radix](re, im)
    elif radix == 16:
        _sixteen[dtype, width, radix](re, im)
    else:
        comptime assert radix == 8, "no such butterfly"
        _eight[dtype, width, radix](re, im)


@always_inline
def _seven[
    dtype: DType, width: Int, radix: Int
](mut re: Lanes[dtype, width, radix], mut im: Lanes[dtype, width, radix]):
    comptime V = SIMD[dtype, width]
    # Cosines and sines of the first to the third seventh of the circle.
    comptime cosines = SIMD[DType.float64, 4](
        0.623489801858733530525004884004,
        -0.222520933956314404288902564497,
        -0.900968867902419126236102319507,
        0,
    )
    comptime sines = SIMD[DType.float64, 4](
        0.781831482468029808708444526674,
        0.974927912181823607018131682994,
        0.433883739117558120475768332848,
        0,
    )
    # What mirrors each other: its sum and its difference.
    var sr = Lanes[dtype, width, 3](fill=0)
    var si = Lanes[dtype, width, 3](fill=0)
    var dr = Lanes[dtype, width, 3](fill=0)
    var di = Lanes[dtype, width, 3](fill=0)
    comptime for j in range(3):
        sr[j] = re[j + 1] + re[6 - j]
        si[j] = im[j + 1] + im[6 - j]
        dr[j] = re[j + 1] - re[6 - j]
        di[j] = im[j + 1] - im[6 - j]
    var first_re = re[0]
    var first_im = im[0]
    re[0] = first_re + (sr[0] + sr[1] + sr[2])
    im[0] = first_im + (si[0] + si[1] + si[2])
    comptime for k in range(1, 4):
        var ar = first_re
        var ai = first_im
        var br = V(0)
        var bi = V(0)
        comptime for j in range(3):
            comptime turn = (j + 1) * k % 7
            comptime c = cosines[min(turn, 7 - turn) - 1]
            comptime s = sines[min(turn, 7 - turn) - 1] * (1.0 if turn < 4 else -1.0)
            ar += sr[j] * Scalar[dtype](c)
            ai += si[j] * Scalar[dtype](c)
            br += di[j] * Scalar[dtype](s)
            bi += dr[j] * Scalar[dtype](s)
        re[k] = ar + br
        im[k] = ai - bi
        re[7 - k] = ar - br
        im[7 - k] = ai + bi


@always_inline
def _eight[
    dtype: DType, width: Int, radix: Int
](mut re: Lanes[dtype, width, radix], mut im: Lanes[dtype, width, radix]):
    """Two of four numbers, the second one's turned by eighths of the circle."""
    comptime half_root = Scalar[dtype](0.707106781186547524400844362105)
    var even_re = Lanes[dtype, width, 4](fill=0)
    var even_im = Lanes[dtype, width, 4](fill=0)
    var odd_re = Lanes[dtype, width, 4](fill=0)
    var odd_im = Lanes[dtype, width, 4](fill=0)
    comptime for k in range(4):
        even_re[k] = re[2 * k]
        even_im[k] = im[2 * k]
        odd_re[k] = re[2 * k + 1]
        odd_im[k] = im[2 * k + 1]
    butterfly[dtype, width, 4](even_re, even_im)
    butterfly[dtype, width, 4](odd_re, odd_im)
    var r = odd_re[1]
    odd_re[1] = (r + odd_im[1]) * half_root
    odd_im[1] = (odd_im[1] - r) * half_root
    r = odd_re[2]
    odd_re[2] = odd_im[2]
    odd_im[2] = -r
    r = odd_re[3]
    odd_re[3] = (odd_im[3] - r) * half_root
    odd_im[3] = -(odd_im[3] + r) * half_root
    comptime for k in range(4):
        re[k] = even_re[k] + odd_re[k]
        im[k] = even_im[k] + odd_im[k]
        re[k + 4] = even_re[k] - odd_re[k]
        im[k + 4] = even_im[k] - odd_im[k]


@always_inline
def _sixteen[
    dtype: DType, width: Int, radix: Int
](mut re: Lanes[dtype, width, radix], mut im: Lanes[dtype, width, radix]):
    """Four times four numbers, those of all but the first turned by sixteenths of the circle."""
    # Cosines and sines of the first to the third of these.
    comptime cosines = SIMD[DType.float64, 4](
        0.923879532511286756128183189397,
        0.707106781186547524400844362105,
        0.382683432365089771728459984030,
        0,
    )
    comptime sines = SIMD[DType.float64, 4](
        0.382683432365089771728459984030,
        0.707106781186547524400844362105,
        0.923879532511286756128183189397,
        0,
    )
    var r = Lanes[dtype, width, 4](fill=0)
    var i = Lanes[dtype, width, 4](fill=0)
    comptime for b in range(4):
        comptime for a in range(4):
            r[a] = re[4 * a + b]
            i[a] = im[4 * a + b]
        butterfly[dtype, width, 4](r, i)
        comptime for k in range(4):
            # The turn by -b k sixteenths: quarters by exchange, the rest by multiplication.
            comptime turn = b * k % 4
            comptime quarters = b * k // 4
            var x = r[k]
            var y = i[k]
            comptime if turn == 2:
                comptime half_root = Scalar[dtype](cosines[1])
                var sum = (x + y) * half_root
                y = (y - x) * half_root
                x = sum
            elif turn != 0:
                comptime c = Scalar[dtype](cosines[turn - 1])
                comptime s = Scalar[dtype](sines[turn - 1])
                var turned = x * c + y * s
                y = y * c - x * s
                x = turned
            comptime if quarters == 1:
                re[4 * k + b] = y
                im[4 * k + b] = -x
            elif quarters == 2:
                re[4 * k + b] = -x
                im[4 * k + b] = -y
            else:
                re[4 * k + b] = x
                im[4 * k + b] = y
    var out_re = Lanes[dtype, width, 16](fill=0)
    var out_im = Lanes[dtype, width, 16](fill=0)
    comptime for k in range(4):
        comptime for b in range(4):
            r[b] = re[4 * k + b]
            i[b] = im[4 * k + b]
        butterfly[dtype, width, 4](r, i)
        comptime for j in range(4):
            out_re[k + 4 * j] = r[j]
            out_im[k + 4 * j] = i[j]
    comptime for k in range(16):
        re[k] = out_re[k]
        im[k] = out_im[k]
