; Bodies of what the math dialect calls on a GPU. The `fast` forms, which `fastmath<afn>` asks for, and
; 2^x and log2 are the hardware's approximations, with subnormal numbers as zeros; the others are exact,
; correctly rounded, or those of `math.ll` in scalar form.

declare float @llvm.nvvm.ex2.approx.ftz.f32(float)
declare float @llvm.nvvm.lg2.approx.ftz.f(float)
declare float @llvm.nvvm.sin.approx.ftz.f(float)
declare float @llvm.nvvm.cos.approx.ftz.f(float)
declare float @llvm.nvvm.rsqrt.approx.ftz.f(float)
declare float @llvm.sqrt.f32(float)
declare float @llvm.fabs.f32(float)
declare float @llvm.floor.f32(float)
declare float @llvm.ceil.f32(float)
declare float @llvm.rint.f32(float)
declare float @llvm.fma.f32(float, float, float)
declare float @llvm.copysign.f32(float, float)
declare float @llvm.minnum.f32(float, float)
declare float @llvm.maxnum.f32(float, float)

declare float @vlmc.exp.f32(float)
declare float @vlmc.log.f32(float)
declare float @vlmc.log1p.f32(float)
declare float @vlmc.sin.f32(float)
declare float @vlmc.cos.f32(float)
declare float @vlmc.tanh.f32(float)
declare float @vlmc.erf.f32(float)

define float @__nv_exp2f(float %x) alwaysinline {
  %y = call float @llvm.nvvm.ex2.approx.ftz.f32(float %x)
  ret float %y
}

; e^x = 2^(x log2 e)
define float @__nv_fast_expf(float %x) alwaysinline {
  %t = fmul float %x, 0x3FF7154760000000
  %y = call float @llvm.nvvm.ex2.approx.ftz.f32(float %t)
  ret float %y
}

define float @__nv_log2f(float %x) alwaysinline {
  %y = call float @llvm.nvvm.lg2.approx.ftz.f(float %x)
  ret float %y
}

define float @__nv_fast_log2f(float %x) alwaysinline {
  %y = call float @llvm.nvvm.lg2.approx.ftz.f(float %x)
  ret float %y
}

; log x = ln 2 log2 x
define float @__nv_fast_logf(float %x) alwaysinline {
  %t = call float @llvm.nvvm.lg2.approx.ftz.f(float %x)
  %y = fmul float %t, 0x3FE62E4300000000
  ret float %y
}

define float @__nv_fast_sinf(float %x) alwaysinline {
  %y = call float @llvm.nvvm.sin.approx.ftz.f(float %x)
  ret float %y
}

define float @__nv_fast_cosf(float %x) alwaysinline {
  %y = call float @llvm.nvvm.cos.approx.ftz.f(float %x)
  ret float %y
}

define float @__nv_rsqrtf(float %x) alwaysinline {
  %y = call float @llvm.nvvm.rsqrt.approx.ftz.f(float %x)
  ret float %y
}

define float @__nv_sqrtf(float %x) alwaysinline {
  %y = call float @llvm.sqrt.f32(float %x)
  ret float %y
}

define float @__nv_fabsf(float %x) alwaysinline {
  %y = call float @llvm.fabs.f32(float %x)
  ret float %y
}

define float @__nv_floorf(float %x) alwaysinline {
  %y = call float @llvm.floor.f32(float %x)
  ret float %y
}

define float @__nv_ceilf(float %x) alwaysinline {
  %y = call float @llvm.ceil.f32(float %x)
  ret float %y
}

define float @__nv_rintf(float %x) alwaysinline {
  %y = call float @llvm.rint.f32(float %x)
  ret float %y
}

define float @__nv_fmaf(float %x, float %y, float %z) alwaysinline {
  %r = call float @llvm.fma.f32(float %x, float %y, float %z)
  ret float %r
}

define float @__nv_copysignf(float %x, float %y) alwaysinline {
  %r = call float @llvm.copysign.f32(float %x, float %y)
  ret float %r
}

define float @__nv_fminf(float %x, float %y) alwaysinline {
  %r = call float @llvm.minnum.f32(float %x, float %y)
  ret float %r
}

define float @__nv_fmaxf(float %x, float %y) alwaysinline {
  %r = call float @llvm.maxnum.f32(float %x, float %y)
  ret float %r
}

define float @__nv_expf(float %x) alwaysinline {
  %y = call float @vlmc.exp.f32(float %x)
  ret float %y
}

define float @__nv_logf(float %x) alwaysinline {
  %y = call float @vlmc.log.f32(float %x)
  ret float %y
}

define float @__nv_log1pf(float %x) alwaysinline {
  %y = call float @vlmc.log1p.f32(float %x)
  ret float %y
}

define float @__nv_sinf(float %x) alwaysinline {
  %y = call float @vlmc.sin.f32(float %x)
  ret float %y
}

define float @__nv_cosf(float %x) alwaysinline {
  %y = call float @vlmc.cos.f32(float %x)
  ret float %y
}

define float @__nv_tanhf(float %x) alwaysinline {
  %y = call float @vlmc.tanh.f32(float %x)
  ret float %y
}

define float @__nv_erff(float %x) alwaysinline {
  %y = call float @vlmc.erf.f32(float %x)
  ret float %y
}
