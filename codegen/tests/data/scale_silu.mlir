// y = silu(x) * w, bf16; eight neighbouring elements a thread, 256 threads a block.
module { gpu.module @scale_silu {
gpu.func @k(%x: !llvm.ptr<1>, %w: !llvm.ptr<1>, %y: !llvm.ptr<1>) kernel attributes {nvvm.maxntid = array<i32: 256>} {
  %log2e = arith.constant dense<-1.44269504> : vector<8xf32>
  %one = arith.constant dense<1.0> : vector<8xf32>
  %threads = arith.constant 256 : i32
  %t = nvvm.read.ptx.sreg.tid.x : i32
  %b = nvvm.read.ptx.sreg.ctaid.x : i32
  %b0 = arith.muli %b, %threads : i32
  %i32 = arith.addi %b0, %t : i32
  %i = arith.extsi %i32 : i32 to i64
  %xp = llvm.getelementptr %x[%i] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, vector<4xi32>
  %wp = llvm.getelementptr %w[%i] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, vector<4xi32>
  %yp = llvm.getelementptr %y[%i] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, vector<4xi32>
  %xb = llvm.load %xp {alignment = 16 : i64} : !llvm.ptr<1> -> vector<8xbf16>
  %wb = llvm.load %wp {alignment = 16 : i64} : !llvm.ptr<1> -> vector<8xbf16>
  %xf = arith.extf %xb : vector<8xbf16> to vector<8xf32> loc("silu.vlm":3:12)
  %wf = arith.extf %wb : vector<8xbf16> to vector<8xf32> loc("silu.vlm":4:9)
  %e = arith.mulf %xf, %log2e : vector<8xf32> loc("std.vlm":40:7)
  %p = math.exp2 %e : vector<8xf32> loc("std.vlm":40:7)
  %d = arith.addf %p, %one : vector<8xf32> loc("std.vlm":41:3)
  %q = arith.divf %xf, %d fastmath<afn,arcp> : vector<8xf32> loc("std.vlm":41:3)
  %z = arith.mulf %q, %wf : vector<8xf32> loc("silu.vlm":5:3)
  %zb = arith.truncf %z : vector<8xf32> to vector<8xbf16> loc("silu.vlm":5:3)
  llvm.store %zb, %yp {alignment = 16 : i64} : vector<8xbf16>, !llvm.ptr<1> loc("silu.vlm":5:3)
  gpu.return
}
} }
