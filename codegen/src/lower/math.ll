; Mathematical functions for vectors of f32, at most 2 ulp from the exact value over their whole range,
; infinities, NaN and subnormal numbers included. This text is for 8 lanes; other numbers of lanes and the scalar
; form are made from it by text (`lower/math.rs`), so keep to `<8 x T>`, `splat (T c)` and `.v8T`.
; Constants are f32 values written as LLVM wants them, in the bits of an f64. The polynomials were fitted for
; the least largest relative error of the function (Remez), in high precision, then rounded.

declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)
declare <8 x float> @llvm.fabs.v8f32(<8 x float>)
declare <8 x float> @llvm.copysign.v8f32(<8 x float>, <8 x float>)
declare <8 x float> @llvm.rint.v8f32(<8 x float>)
declare <8 x double> @llvm.rint.v8f64(<8 x double>)
declare <8 x double> @llvm.fma.v8f64(<8 x double>, <8 x double>, <8 x double>)
declare <8 x double> @llvm.floor.v8f64(<8 x double>)

; p * 2^n for n of [-152, 130], in two steps: 2^n alone may have no exponent, and a subnormal result is
; rounded once.
define internal <8 x float> @vlmc.scale.v8f32(<8 x float> %p, <8 x float> %n) alwaysinline {
  %i = fptosi <8 x float> %n to <8 x i32>
  %i.a = ashr <8 x i32> %i, splat (i32 1)
  %i.b = sub <8 x i32> %i, %i.a
  %e.a = add <8 x i32> %i.a, splat (i32 127)
  %e.b = add <8 x i32> %i.b, splat (i32 127)
  %s.a = shl <8 x i32> %e.a, splat (i32 23)
  %s.b = shl <8 x i32> %e.b, splat (i32 23)
  %f.a = bitcast <8 x i32> %s.a to <8 x float>
  %f.b = bitcast <8 x i32> %s.b to <8 x float>
  %q = fmul <8 x float> %p, %f.a
  %r = fmul <8 x float> %q, %f.b
  ret <8 x float> %r
}

; 2^x = 2^n 2^f, n the nearest integer.
define <8 x float> @vlmc.exp2.v8f32(<8 x float> %x) alwaysinline {
  %low = fcmp olt <8 x float> %x, splat (float 0xC063000000000000)
  %x.l = select <8 x i1> %low, <8 x float> splat (float 0xC063000000000000), <8 x float> %x
  %high = fcmp ogt <8 x float> %x.l, splat (float 0x4060400000000000)
  %x.h = select <8 x i1> %high, <8 x float> splat (float 0x4060400000000000), <8 x float> %x.l
  %nan = fcmp uno <8 x float> %x, splat (float 0x0000000000000000)
  %c = select <8 x i1> %nan, <8 x float> splat (float 0x0000000000000000), <8 x float> %x.h
  %n = call <8 x float> @llvm.rint.v8f32(<8 x float> %c)
  %f = fsub <8 x float> %c, %n
  %s.4 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3F241FB9A0000000), <8 x float> %f, <8 x float> splat (float 0x3F55F3F300000000))
  %s.3 = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.4, <8 x float> %f, <8 x float> splat (float 0x3F83B2D500000000))
  %s.2 = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.3, <8 x float> %f, <8 x float> splat (float 0x3FAC6AEE60000000))
  %s.1 = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.2, <8 x float> %f, <8 x float> splat (float 0x3FCEBFBDC0000000))
  %s = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.1, <8 x float> %f, <8 x float> splat (float 0x3FE62E4300000000))
  %p = call <8 x float> @llvm.fma.v8f32(<8 x float> %s, <8 x float> %f, <8 x float> splat (float 0x3FF0000000000000))
  %r = call <8 x float> @vlmc.scale.v8f32(<8 x float> %p, <8 x float> %n)
  %y = select <8 x i1> %nan, <8 x float> %x, <8 x float> %r
  ret <8 x float> %y
}

; e^x = 2^n e^r, r = x - n ln 2 with ln 2 in two parts.
define <8 x float> @vlmc.exp.v8f32(<8 x float> %x) alwaysinline {
  %low = fcmp olt <8 x float> %x, splat (float 0xC05A400000000000)
  %x.l = select <8 x i1> %low, <8 x float> splat (float 0xC05A400000000000), <8 x float> %x
  %high = fcmp ogt <8 x float> %x.l, splat (float 0x4056800000000000)
  %x.h = select <8 x i1> %high, <8 x float> splat (float 0x4056800000000000), <8 x float> %x.l
  %nan = fcmp uno <8 x float> %x, splat (float 0x0000000000000000)
  %c = select <8 x i1> %nan, <8 x float> splat (float 0x0000000000000000), <8 x float> %x.h
  %t = fmul <8 x float> %c, splat (float 0x3FF7154760000000)
  %n = call <8 x float> @llvm.rint.v8f32(<8 x float> %t)
  %r.h = call <8 x float> @llvm.fma.v8f32(<8 x float> %n, <8 x float> splat (float 0xBFE62E4300000000), <8 x float> %c)
  %r = call <8 x float> @llvm.fma.v8f32(<8 x float> %n, <8 x float> splat (float 0x3E205C6100000000), <8 x float> %r.h)
  %r2 = fmul <8 x float> %r, %r
  %s.3 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3F56A24240000000), <8 x float> %r, <8 x float> splat (float 0x3F8123A0A0000000))
  %s.2 = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.3, <8 x float> %r, <8 x float> splat (float 0x3FA5558F20000000))
  %s.1 = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.2, <8 x float> %r, <8 x float> splat (float 0x3FC5554920000000))
  %s = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.1, <8 x float> %r, <8 x float> splat (float 0x3FDFFFFFC0000000))
  %q = call <8 x float> @llvm.fma.v8f32(<8 x float> %s, <8 x float> %r2, <8 x float> %r)
  %p = fadd <8 x float> %q, splat (float 0x3FF0000000000000)
  %e = call <8 x float> @vlmc.scale.v8f32(<8 x float> %p, <8 x float> %n)
  %y = select <8 x i1> %nan, <8 x float> %x, <8 x float> %e
  ret <8 x float> %y
}

; log x = n ln 2 + log(1 + f), with 1 + f of [sqrt 1/2, sqrt 2). Subnormal numbers are scaled up first. Adding the
; bits of 1 - sqrt 1/2 carries into the exponent where the fraction is above sqrt 2.
define <8 x float> @vlmc.log.v8f32(<8 x float> %x) alwaysinline {
  %tiny = fcmp olt <8 x float> %x, splat (float 0x3810000000000000)
  %x.up = fmul <8 x float> %x, splat (float 0x4160000000000000)
  %v = select <8 x i1> %tiny, <8 x float> %x.up, <8 x float> %x
  %down = select <8 x i1> %tiny, <8 x float> splat (float 0xC037000000000000), <8 x float> splat (float 0x0000000000000000)
  %b = bitcast <8 x float> %v to <8 x i32>
  %b.c = add <8 x i32> %b, splat (i32 4913933)
  %b.e = ashr <8 x i32> %b.c, splat (i32 23)
  %i = sub <8 x i32> %b.e, splat (i32 127)
  %i.f = sitofp <8 x i32> %i to <8 x float>
  %n = fadd <8 x float> %i.f, %down
  %b.m = and <8 x i32> %b.c, splat (i32 8388607)
  %m.b = add <8 x i32> %b.m, splat (i32 1060439283)
  %m = bitcast <8 x i32> %m.b to <8 x float>
  %f = fsub <8 x float> %m, splat (float 0x3FF0000000000000)
  %f2 = fmul <8 x float> %f, %f
  %s.7 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3FB1B434E0000000), <8 x float> %f, <8 x float> splat (float 0xBFBE2E99E0000000))
  %s.6 = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.7, <8 x float> %f, <8 x float> splat (float 0x3FBE650600000000))
  %s.5 = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.6, <8 x float> %f, <8 x float> splat (float 0xBFBFB432C0000000))
  %s.4 = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.5, <8 x float> %f, <8 x float> splat (float 0x3FC2332C40000000))
  %s.3 = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.4, <8 x float> %f, <8 x float> splat (float 0xBFC5562E40000000))
  %s.2 = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.3, <8 x float> %f, <8 x float> splat (float 0x3FC99A5460000000))
  %s.1 = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.2, <8 x float> %f, <8 x float> splat (float 0xBFCFFFFEE0000000))
  %s = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.1, <8 x float> %f, <8 x float> splat (float 0x3FD5555460000000))
  %s.f = fmul <8 x float> %s, %f
  %low = fmul <8 x float> %n, splat (float 0xBF2BD01060000000)
  %s.h = fadd <8 x float> %s.f, splat (float 0xBFE0000000000000)
  %t = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.h, <8 x float> %f2, <8 x float> %low)
  %u = fadd <8 x float> %f, %t
  %r = call <8 x float> @llvm.fma.v8f32(<8 x float> %n, <8 x float> splat (float 0x3FE6300000000000), <8 x float> %u)
  %pos = fcmp ogt <8 x float> %x, splat (float 0x0000000000000000)
  %zero = fcmp oeq <8 x float> %x, splat (float 0x0000000000000000)
  %bad = select <8 x i1> %zero, <8 x float> splat (float 0xFFF0000000000000), <8 x float> splat (float 0x7FF8000000000000)
  %r.p = select <8 x i1> %pos, <8 x float> %r, <8 x float> %bad
  %inf = fcmp oeq <8 x float> %x, splat (float 0x7FF0000000000000)
  %y = select <8 x i1> %inf, <8 x float> %x, <8 x float> %r.p
  ret <8 x float> %y
}

; log(1 + x): what rounding 1 + x lost is put back, in first order.
define <8 x float> @vlmc.log1p.v8f32(<8 x float> %x) alwaysinline {
  %u = fadd <8 x float> %x, splat (float 0x3FF0000000000000)
  %l = call <8 x float> @vlmc.log.v8f32(<8 x float> %u)
  %d = fsub <8 x float> %u, splat (float 0x3FF0000000000000)
  %lost = fsub <8 x float> %x, %d
  %c = fdiv <8 x float> %lost, %u
  %r = fadd <8 x float> %l, %c
  %a = call <8 x float> @llvm.fabs.v8f32(<8 x float> %x)
  %small = fcmp olt <8 x float> %a, splat (float 0x3E70000000000000)
  %r.s = select <8 x i1> %small, <8 x float> %x, <8 x float> %r
  %inf = fcmp oeq <8 x float> %u, splat (float 0x7FF0000000000000)
  %zero = fcmp oeq <8 x float> %u, splat (float 0x0000000000000000)
  %edge = or <8 x i1> %inf, %zero
  %y = select <8 x i1> %edge, <8 x float> %l, <8 x float> %r.s
  ret <8 x float> %y
}

; sin(x + q pi/2) = +-sin r or +-cos r, r = x - n pi/2 of about [-pi/4, pi/4]. The reduction is in f64 with pi/2 in two
; parts and good to |x| = 2^48; beyond, and for infinities, the result is NaN: f32 values lie further apart than
; a period there from 2^26 on, so no formula should get that far.
define internal <8 x float> @vlmc.wave.v8f32(<8 x float> %x, <8 x i32> %q) alwaysinline {
  %a = call <8 x float> @llvm.fabs.v8f32(<8 x float> %x)
  %ok = fcmp ole <8 x float> %a, splat (float 0x42F0000000000000)
  %c = select <8 x i1> %ok, <8 x float> %x, <8 x float> splat (float 0x0000000000000000)
  %d = fpext <8 x float> %c to <8 x double>
  %t = fmul <8 x double> %d, splat (double 0x3FE45F306DC9C883)
  %n = call <8 x double> @llvm.rint.v8f64(<8 x double> %t)
  %n.m = fneg <8 x double> %n
  %r.h = call <8 x double> @llvm.fma.v8f64(<8 x double> %n.m, <8 x double> splat (double 0x3FF921FB54442D18), <8 x double> %d)
  %r.d = call <8 x double> @llvm.fma.v8f64(<8 x double> %n.m, <8 x double> splat (double 0x3C91A62633145C07), <8 x double> %r.h)
  %r = fptrunc <8 x double> %r.d to <8 x float>
  %n.4 = fmul <8 x double> %n, splat (double 0x3FD0000000000000)
  %n.f = call <8 x double> @llvm.floor.v8f64(<8 x double> %n.4)
  %k.d = call <8 x double> @llvm.fma.v8f64(<8 x double> %n.f, <8 x double> splat (double 0xC010000000000000), <8 x double> %n)
  %k.0 = fptosi <8 x double> %k.d to <8 x i32>
  %k = add <8 x i32> %k.0, %q
  %z = fmul <8 x float> %r, %r
  %s.2 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3EC6CBED00000000), <8 x float> %z, <8 x float> splat (float 0xBF2A00F320000000))
  %s.1 = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.2, <8 x float> %z, <8 x float> splat (float 0x3F81111080000000))
  %s = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.1, <8 x float> %z, <8 x float> splat (float 0xBFC5555560000000))
  %z.r = fmul <8 x float> %z, %r
  %sin = call <8 x float> @llvm.fma.v8f32(<8 x float> %s, <8 x float> %z.r, <8 x float> %r)
  %g.2 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0xBE92417E40000000), <8 x float> %z, <8 x float> splat (float 0x3EFA010C40000000))
  %g.1 = call <8 x float> @llvm.fma.v8f32(<8 x float> %g.2, <8 x float> %z, <8 x float> splat (float 0xBF56C16B80000000))
  %g = call <8 x float> @llvm.fma.v8f32(<8 x float> %g.1, <8 x float> %z, <8 x float> splat (float 0x3FA5555560000000))
  %z2 = fmul <8 x float> %z, %z
  %h = call <8 x float> @llvm.fma.v8f32(<8 x float> %z, <8 x float> splat (float 0xBFE0000000000000), <8 x float> splat (float 0x3FF0000000000000))
  %cos = call <8 x float> @llvm.fma.v8f32(<8 x float> %g, <8 x float> %z2, <8 x float> %h)
  %odd = trunc <8 x i32> %k to <8 x i1>
  %w = select <8 x i1> %odd, <8 x float> %cos, <8 x float> %sin
  %k.s = shl <8 x i32> %k, splat (i32 30)
  %sign = and <8 x i32> %k.s, splat (i32 -2147483648)
  %w.b = bitcast <8 x float> %w to <8 x i32>
  %w.s = xor <8 x i32> %w.b, %sign
  %y.0 = bitcast <8 x i32> %w.s to <8 x float>
  %y = select <8 x i1> %ok, <8 x float> %y.0, <8 x float> splat (float 0x7FF8000000000000)
  ret <8 x float> %y
}

define <8 x float> @vlmc.sin.v8f32(<8 x float> %x) alwaysinline {
  %r = call <8 x float> @vlmc.wave.v8f32(<8 x float> %x, <8 x i32> splat (i32 0))
  %zero = fcmp oeq <8 x float> %x, splat (float 0x0000000000000000)
  %y = select <8 x i1> %zero, <8 x float> %x, <8 x float> %r
  ret <8 x float> %y
}

define <8 x float> @vlmc.cos.v8f32(<8 x float> %x) alwaysinline {
  %y = call <8 x float> @vlmc.wave.v8f32(<8 x float> %x, <8 x i32> splat (i32 1))
  ret <8 x float> %y
}

; tanh |x| = 1 - 2 / (e^(2 |x|) + 1), and near 0 a polynomial.
define <8 x float> @vlmc.tanh.v8f32(<8 x float> %x) alwaysinline {
  %a = call <8 x float> @llvm.fabs.v8f32(<8 x float> %x)
  %z = fmul <8 x float> %x, %x
  %s.4 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3F6190BFE0000000), <8 x float> %z, <8 x float> splat (float 0xBF80C03E60000000))
  %s.3 = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.4, <8 x float> %z, <8 x float> splat (float 0x3F9638F240000000))
  %s.2 = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.3, <8 x float> %z, <8 x float> splat (float 0xBFAB9EEFE0000000))
  %s.1 = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.2, <8 x float> %z, <8 x float> splat (float 0x3FC1110680000000))
  %s = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.1, <8 x float> %z, <8 x float> splat (float 0xBFD5555540000000))
  %z.a = fmul <8 x float> %z, %a
  %near = call <8 x float> @llvm.fma.v8f32(<8 x float> %s, <8 x float> %z.a, <8 x float> %a)
  %a2 = fadd <8 x float> %a, %a
  %e = call <8 x float> @vlmc.exp.v8f32(<8 x float> %a2)
  %e.1 = fadd <8 x float> %e, splat (float 0x3FF0000000000000)
  %q = fdiv <8 x float> splat (float 0x4000000000000000), %e.1
  %far = fsub <8 x float> splat (float 0x3FF0000000000000), %q
  %small = fcmp olt <8 x float> %a, splat (float 0x3FE4000000000000)
  %r = select <8 x i1> %small, <8 x float> %near, <8 x float> %far
  %y = call <8 x float> @llvm.copysign.v8f32(<8 x float> %r, <8 x float> %x)
  ret <8 x float> %y
}

; erf x = x + x p(x^2) to |x| = 1, then 1 - e^-g(|x|), g = -log(1 - erf); from 4 on it is 1.
define <8 x float> @vlmc.erf.v8f32(<8 x float> %x) alwaysinline {
  %a = call <8 x float> @llvm.fabs.v8f32(<8 x float> %x)
  %z = fmul <8 x float> %x, %x
  %s.6 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0xBEE4489140000000), <8 x float> %z, <8 x float> splat (float 0x3F1D89BEA0000000))
  %s.5 = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.6, <8 x float> %z, <8 x float> splat (float 0xBF4BCD3580000000))
  %s.4 = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.5, <8 x float> %z, <8 x float> splat (float 0x3F7562AC00000000))
  %s.3 = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.4, <8 x float> %z, <8 x float> splat (float 0xBF9B829D20000000))
  %s.2 = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.3, <8 x float> %z, <8 x float> splat (float 0x3FBCE2F0A0000000))
  %s.1 = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.2, <8 x float> %z, <8 x float> splat (float 0xBFD8127460000000))
  %s = call <8 x float> @llvm.fma.v8f32(<8 x float> %s.1, <8 x float> %z, <8 x float> splat (float 0x3FC06EBA80000000))
  %near = call <8 x float> @llvm.fma.v8f32(<8 x float> %s, <8 x float> %a, <8 x float> %a)
  %over = fcmp ogt <8 x float> %a, splat (float 0x4010000000000000)
  %t = select <8 x i1> %over, <8 x float> splat (float 0x4010000000000000), <8 x float> %a
  %g.6 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3EF6C05940000000), <8 x float> %t, <8 x float> splat (float 0xBF3CEEA260000000))
  %g.5 = call <8 x float> @llvm.fma.v8f32(<8 x float> %g.6, <8 x float> %t, <8 x float> splat (float 0x3F71398B80000000))
  %g.4 = call <8 x float> @llvm.fma.v8f32(<8 x float> %g.5, <8 x float> %t, <8 x float> splat (float 0xBF99D0BA60000000))
  %g.3 = call <8 x float> @llvm.fma.v8f32(<8 x float> %g.4, <8 x float> %t, <8 x float> splat (float 0x3FBBC18BC0000000))
  %g.2 = call <8 x float> @llvm.fma.v8f32(<8 x float> %g.3, <8 x float> %t, <8 x float> splat (float 0x3FE4434F40000000))
  %g.1 = call <8 x float> @llvm.fma.v8f32(<8 x float> %g.2, <8 x float> %t, <8 x float> splat (float 0x3FF212C2C0000000))
  %g = call <8 x float> @llvm.fma.v8f32(<8 x float> %g.1, <8 x float> %t, <8 x float> splat (float 0xBF28B39C80000000))
  %g.m = fneg <8 x float> %g
  %e = call <8 x float> @vlmc.exp.v8f32(<8 x float> %g.m)
  %far = fsub <8 x float> splat (float 0x3FF0000000000000), %e
  %small = fcmp olt <8 x float> %a, splat (float 0x3FF0000000000000)
  %r = select <8 x i1> %small, <8 x float> %near, <8 x float> %far
  %y = call <8 x float> @llvm.copysign.v8f32(<8 x float> %r, <8 x float> %x)
  ret <8 x float> %y
}
