"""Bessel functions of the first and second kind.

The coefficients are those of Cephes (S. Moshier, Methods and Programs for Mathematical Functions,
1989), monic denominators included.
"""

from std.math import sqrt

from .double import INF, NAN, horner, log64, sin_cos64

comptime _J0_PP: List[Float64] = [
    0.0007969367292973471,
    0.08283523921074408,
    1.239533716464143,
    5.447250030587687,
    8.74716500199817,
    5.303240382353949,
    1.0,
]
comptime _J0_PQ: List[Float64] = [
    0.0009244088105588637,
    0.08562884743544745,
    1.2535274390105895,
    5.470977403304171,
    8.761908832370695,
    5.306052882353947,
    1.0,
]
comptime _J0_QP: List[Float64] = [
    -0.011366383889846916,
    -1.2825271867050931,
    -19.553954425773597,
    -93.20601521237683,
    -177.68116798048806,
    -147.07750515495118,
    -51.41053267665993,
    -6.050143506007285,
]
comptime _J0_QQ: List[Float64] = [
    1.0,
    64.3178256118178,
    856.4300259769806,
    3882.4018360540163,
    7240.467741956525,
    5930.727011873169,
    2062.0933166032783,
    242.0057402402914,
]
comptime _J0_RP: List[Float64] = [
    -4794432209.782018,
    1956174919465.5657,
    -249248344360967.72,
    9708622510473064.0,
]
comptime _J0_RQ: List[Float64] = [
    1.0,
    499.563147152651,
    173785.4016763747,
    48440965.83399621,
    11185553704.535683,
    2112775201154.892,
    310518229857422.56,
    3.1812195594320496e+16,
    1.7108629408104315e+18,
]
comptime _J1_PP: List[Float64] = [
    0.0007621256162081731,
    0.07313970569409176,
    1.1271960812968493,
    5.112079511468076,
    8.424045901417724,
    5.214515986823615,
    1.0,
]
comptime _J1_PQ: List[Float64] = [
    0.0005713231280725487,
    0.06884559087544954,
    1.105142326340617,
    5.073863861286015,
    8.399855543276042,
    5.209828486823619,
    1.0,
]
comptime _J1_QP: List[Float64] = [
    0.05108625947501766,
    4.982138729512334,
    75.82382841325453,
    366.7796093601508,
    710.8563049989261,
    597.4896124006136,
    211.68875710057213,
    25.207020585802372,
]
comptime _J1_QQ: List[Float64] = [
    1.0,
    74.23732770356752,
    1056.4488603826283,
    4986.410583376536,
    9562.318924047562,
    7997.041604473507,
    2826.1927851763908,
    336.0936078106983,
]
comptime _J1_RP: List[Float64] = [
    -899971225.7055594,
    452228297998.19403,
    -72749424522181.83,
    3682957328638529.0,
]
comptime _J1_RQ: List[Float64] = [
    1.0,
    620.8364781180543,
    256987.25675774884,
    83514679.14319493,
    22151159547.97925,
    4749141220799.914,
    784369607876235.9,
    8.952223361846274e+16,
    5.322786203326801e+18,
]
comptime _Y0_YP: List[Float64] = [
    15592.436785523574,
    -14663929.59039716,
    5435264770.518765,
    -982136065717.9115,
    87590639439536.7,
    -3466283033847297.0,
    4.4273326857256984e+16,
    -1.8495080043698668e+16,
]
comptime _Y0_YQ: List[Float64] = [
    1.0,
    1041.2835366425984,
    626107.330137135,
    268919633.39381415,
    86400248710.3935,
    20297961275010.555,
    3171577528429750.5,
    2.5059625617265306e+17,
]
comptime _Y1_YP: List[Float64] = [
    1263204747.9017804,
    -647355876379.1603,
    114509511541823.73,
    -8127702555013251.0,
    2.024394757135949e+17,
    -7.788771962659501e+17,
]
comptime _Y1_YQ: List[Float64] = [
    1.0,
    594.3015923461282,
    235564.09294306856,
    73481194.44597217,
    18760131610.870617,
    3882312774962.3857,
    620557727146953.8,
    6.871410873553005e+16,
    3.9727060811656064e+18,
]

# (-1)**k / (2k+1)! for k = 7, ..., 1
comptime _SPHERICAL: List[Float64] = [
    -7.647163731819816e-13,
    1.6059043836821613e-10,
    -2.505210838544172e-08,
    2.7557319223985893e-06,
    -0.0001984126984126984,
    0.008333333333333333,
    -0.16666666666666666,
]

comptime _TWO_OVER_PI = 0.6366197723675814
comptime _ROOT_OF_INVERSE_PI = 0.5641895835477563


@always_inline
def _far[
    PP: List[Float64],
    PQ: List[Float64],
    QP: List[Float64],
    QQ: List[Float64],
    w: SIMDLength,
](
    x: SIMD[DType.float64, w],
    cosine: SIMD[DType.float64, w],
    sine: SIMD[DType.float64, w],
) -> SIMD[DType.float64, w]:
    """Hankel's expansion for `x` above 5; the phase is that of root 2 times sine and cosine."""
    var y = 5 / x
    var z = y * y
    var p = horner[PP](z) / horner[PQ](z)
    var q = horner[QP](z) / horner[QQ](z)
    return (p * cosine - y * q * sine) * (_ROOT_OF_INVERSE_PI / sqrt(x))


@always_inline
def bessel_j0[w: SIMDLength](x: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    var a = abs(x)
    var z = a * a
    var zeros = (z - 5.78318596294678452118) * (z - 30.4712623436620863991)
    var near = zeros * horner[_J0_RP](z) / horner[_J0_RQ](z)
    near = a.lt(1e-5).select(1 - 0.25 * z, near)
    var is_near = a.le(5)
    if is_near.reduce_and():
        return near
    var sine, cosine = sin_cos64(a)
    var far = _far[_J0_PP, _J0_PQ, _J0_QP, _J0_QQ](a, cosine + sine, sine - cosine)
    return is_near.select(near, far)


@always_inline
def bessel_j1[w: SIMDLength](x: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    var a = abs(x)
    var z = a * a
    var zeros = (z - 14.6819706421238932572) * (z - 49.2184563216946036703)
    var near = x * horner[_J1_RP](z) / horner[_J1_RQ](z) * zeros
    var is_near = a.le(5)
    if is_near.reduce_and():
        return near
    var sine, cosine = sin_cos64(a)
    var far = _far[_J1_PP, _J1_PQ, _J1_QP, _J1_QQ](a, sine - cosine, -(sine + cosine))
    return is_near.select(near, x.lt(0).select(-far, far))


@always_inline
def bessel_y0[w: SIMDLength](x: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    comptime F = SIMD[DType.float64, w]
    var is_near = x.le(5)
    var z = x * x
    var near = horner[_Y0_YP](z) / horner[_Y0_YQ](z)
    near += _TWO_OVER_PI * log64(x) * bessel_j0(is_near.select(x, F(1)))
    near = x.eq(0).select(F(-INF), near)
    if is_near.reduce_and():
        return near
    var sine, cosine = sin_cos64(x)
    var far = _far[_J0_PP, _J0_PQ, _J0_QP, _J0_QQ](x, sine - cosine, -(sine + cosine))
    return is_near.select(near, far)


@always_inline
def bessel_y1[w: SIMDLength](x: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    comptime F = SIMD[DType.float64, w]
    var is_near = x.le(5)
    var z = x * x
    var near = x * (horner[_Y1_YP](z) / horner[_Y1_YQ](z))
    near += _TWO_OVER_PI * (bessel_j1(is_near.select(x, F(1))) * log64(x) - 1 / x)
    near = x.eq(0).select(F(-INF), near)
    if is_near.reduce_and():
        return near
    var sine, cosine = sin_cos64(x)
    var far = _far[_J1_PP, _J1_PQ, _J1_QP, _J1_QQ](x, -(sine + cosine), cosine - sine)
    return is_near.select(near, far)


@always_inline
def spherical_bessel_j0[
    w: SIMDLength
](x: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    comptime F = SIMD[DType.float64, w]
    var z = x * x
    var sine, _ = sin_cos64(x)
    var result = abs(x).lt(0.5).select(z * horner[_SPHERICAL](z) + 1, sine / x)
    return abs(x).eq(INF).select(F(0), result)
