// One warp a row of 128: its sum of squares by lane exchange, and the logarithm of it, accurate.
module { gpu.module @row_sum {
gpu.func @k(%x: !llvm.ptr<1>, %y: !llvm.ptr<1>) kernel attributes {nvvm.maxntid = array<i32: 32>} {
  %width = arith.constant 32 : i32
  %zero = arith.constant 0 : i32
  %t = nvvm.read.ptx.sreg.tid.x : i32
  %b = nvvm.read.ptx.sreg.ctaid.x : i32
  %r = arith.muli %b, %width : i32
  %i32 = arith.addi %r, %t : i32
  %i = arith.extsi %i32 : i32 to i64
  %xp = llvm.getelementptr %x[%i] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, vector<4xf32>
  %v = llvm.load %xp {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
  %sq = arith.mulf %v, %v : vector<4xf32>
  %s = vector.reduction <add>, %sq : vector<4xf32> into f32
  %o16 = arith.constant 16 : i32
  %s16, %v16 = gpu.shuffle xor %s, %o16, %width : f32
  %a16 = arith.addf %s, %s16 : f32
  %o8 = arith.constant 8 : i32
  %s8, %v8 = gpu.shuffle xor %a16, %o8, %width : f32
  %a8 = arith.addf %a16, %s8 : f32
  %o4 = arith.constant 4 : i32
  %s4, %v4 = gpu.shuffle xor %a8, %o4, %width : f32
  %a4 = arith.addf %a8, %s4 : f32
  %o2 = arith.constant 2 : i32
  %s2, %v2 = gpu.shuffle xor %a4, %o2, %width : f32
  %a2 = arith.addf %a4, %s2 : f32
  %o1 = arith.constant 1 : i32
  %s1, %v1 = gpu.shuffle xor %a2, %o1, %width : f32
  %a1 = arith.addf %a2, %s1 : f32
  %l = math.log %a1 : f32
  %first = arith.cmpi eq, %t, %zero : i32
  scf.if %first {
    %j = arith.extsi %b : i32 to i64
    %yp = llvm.getelementptr %y[%j] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f32
    llvm.store %l, %yp : f32, !llvm.ptr<1>
  }
  gpu.return
}
} }
