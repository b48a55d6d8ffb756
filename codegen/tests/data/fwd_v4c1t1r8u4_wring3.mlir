module attributes {gpu.container_module} { gpu.module @fwd_v4c1t1r8u4_wring3 {
llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<0 x i8>
gpu.func @k(%x: !llvm.ptr<1>, %w: !llvm.ptr<1>, %al: !llvm.ptr<1>, %dtb: !llvm.ptr<1>, %cu: !llvm.ptr<1>, %q: !llvm.ptr<1>, %k: !llvm.ptr<1>, %v: !llvm.ptr<1>, %g: !llvm.ptr<1>, %be: !llvm.ptr<1>, %T: i32, %NCU: i32) kernel attributes {nvvm.maxntid = array<i32: 32>} {
%v1 = nvvm.read.ptx.sreg.tid.x : i32
%v2 = nvvm.read.ptx.sreg.ctaid.x : i32
%v3 = nvvm.read.ptx.sreg.ctaid.y : i32
%v4 = arith.constant 31 : i32
%v5 = arith.andi %v1, %v4 : i32
%v6 = arith.constant 5 : i32
%v7 = arith.shrui %v1, %v6 : i32
%v8 = arith.constant 0 : i32
%v9 = arith.andi %v7, %v8 : i32
%v10 = arith.constant 0 : i32
%v11 = arith.shrui %v7, %v10 : i32
%v12 = arith.constant 8 : i32
%v13 = arith.muli %v3, %v12 : i32
%v14 = arith.constant 8 : i32
%v15 = arith.muli %v11, %v14 : i32
%v16 = arith.addi %v13, %v15 : i32
%v17 = llvm.mlir.addressof @smem : !llvm.ptr<3>
%v18 = llvm.ptrtoint %v17 : !llvm.ptr<3> to i32
%v19 = arith.constant 64 : i32
%v20 = arith.cmpi ult, %v2, %v19 : i32
scf.if %v20 {
%v22 = arith.constant 32 : i32
%v23 = arith.cmpi ult, %v2, %v22 : i32
scf.if %v23 {
%v25 = arith.constant 128 : i32
%v26 = arith.muli %v2, %v25 : i32
%v27 = arith.constant 128 : i32
%v28 = arith.muli %v9, %v27 : i32
%v29 = arith.constant 4 : i32
%v30 = arith.muli %v5, %v29 : i32
%v31 = arith.addi %v28, %v30 : i32
%v32 = arith.addi %v26, %v31 : i32
%v33 = arith.constant 2 : i32
%v34 = arith.muli %v32, %v33 : i32
%v35 = arith.extsi %v34 : i32 to i64
%v36 = llvm.getelementptr %x[%v35] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v37 = arith.constant 2048 : i32
%v38 = arith.cmpi ult, %v32, %v37 : i32
%v39 = arith.select %v38, %q, %k : !llvm.ptr<1>
%v40 = arith.constant 2047 : i32
%v41 = arith.andi %v32, %v40 : i32
%v42 = arith.constant 2 : i32
%v43 = arith.muli %v41, %v42 : i32
%v44 = arith.extsi %v43 : i32 to i64
%v45 = llvm.getelementptr %v39[%v44] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v46 = arith.constant 8.83883476483184466e-02 : f32
%v47 = arith.constant 1.00000000000000000e+00 : f32
%v48 = arith.select %v38, %v46, %v47 : f32
%v49 = arith.constant 3 : i32
%v50 = arith.subi %v16, %v49 : i32
%v51 = arith.constant 0 : i32
%v52 = arith.addi %v50, %v51 : i32
%v53 = arith.constant 0 : i32
%v54 = arith.maxsi %v52, %v53 : i32
%v55 = arith.extsi %v54 : i32 to i64
%v56 = arith.constant 24704 : i64
%v57 = arith.muli %v55, %v56 : i64
%v58 = llvm.getelementptr %v36[%v57] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v59 = arith.cmpi eq, %v54, %v52 : i32
%v60 = arith.constant 1 : i32
%v61 = arith.addi %v50, %v60 : i32
%v62 = arith.constant 0 : i32
%v63 = arith.maxsi %v61, %v62 : i32
%v64 = arith.extsi %v63 : i32 to i64
%v65 = arith.constant 24704 : i64
%v66 = arith.muli %v64, %v65 : i64
%v67 = llvm.getelementptr %v36[%v66] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v68 = arith.cmpi eq, %v63, %v61 : i32
%v69 = arith.constant 2 : i32
%v70 = arith.addi %v50, %v69 : i32
%v71 = arith.constant 0 : i32
%v72 = arith.maxsi %v70, %v71 : i32
%v73 = arith.extsi %v72 : i32 to i64
%v74 = arith.constant 24704 : i64
%v75 = arith.muli %v73, %v74 : i64
%v76 = llvm.getelementptr %v36[%v75] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v77 = arith.cmpi eq, %v72, %v70 : i32
%v78 = llvm.load %v58 {alignment = 8 : i64} : !llvm.ptr<1> -> vector<2xi32>
%v79 = vector.extract %v78[0] : i32 from vector<2xi32>
%v80 = vector.extract %v78[1] : i32 from vector<2xi32>
%v81 = llvm.load %v67 {alignment = 8 : i64} : !llvm.ptr<1> -> vector<2xi32>
%v82 = vector.extract %v81[0] : i32 from vector<2xi32>
%v83 = vector.extract %v81[1] : i32 from vector<2xi32>
%v84 = llvm.load %v76 {alignment = 8 : i64} : !llvm.ptr<1> -> vector<2xi32>
%v85 = vector.extract %v84[0] : i32 from vector<2xi32>
%v86 = vector.extract %v84[1] : i32 from vector<2xi32>
%v87 = arith.constant 0 : i32
%v88 = arith.select %v59, %v79, %v87 : i32
%v89 = arith.select %v59, %v80, %v87 : i32
%v90 = arith.select %v68, %v82, %v87 : i32
%v91 = arith.select %v68, %v83, %v87 : i32
%v92 = arith.select %v77, %v85, %v87 : i32
%v93 = arith.select %v77, %v86, %v87 : i32
%v94 = arith.constant 9.99999999999999955e-07 : f32
%v95 = arith.constant 8 : i32
%v96 = arith.muli %v32, %v95 : i32
%v97 = arith.extsi %v96 : i32 to i64
%v98 = llvm.getelementptr %w[%v97] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v99 = llvm.getelementptr %v98[0] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
%v100 = llvm.load %v99 {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>
%v101 = vector.extract %v100[0] : i32 from vector<4xi32>
%v102 = vector.extract %v100[1] : i32 from vector<4xi32>
%v103 = vector.extract %v100[2] : i32 from vector<4xi32>
%v104 = vector.extract %v100[3] : i32 from vector<4xi32>
%v105 = llvm.getelementptr %v98[16] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
%v106 = llvm.load %v105 {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>
%v107 = vector.extract %v106[0] : i32 from vector<4xi32>
%v108 = vector.extract %v106[1] : i32 from vector<4xi32>
%v109 = vector.extract %v106[2] : i32 from vector<4xi32>
%v110 = vector.extract %v106[3] : i32 from vector<4xi32>
%v111 = arith.constant -65536 : i32
%v112 = arith.constant 16 : i32
%v113 = arith.shli %v101, %v112 : i32
%v114 = arith.bitcast %v113 : i32 to f32
%v115 = arith.andi %v101, %v111 : i32
%v116 = arith.bitcast %v115 : i32 to f32
%v117 = arith.constant -65536 : i32
%v118 = arith.constant 16 : i32
%v119 = arith.shli %v102, %v118 : i32
%v120 = arith.bitcast %v119 : i32 to f32
%v121 = arith.andi %v102, %v117 : i32
%v122 = arith.bitcast %v121 : i32 to f32
%v123 = arith.constant -65536 : i32
%v124 = arith.constant 16 : i32
%v125 = arith.shli %v103, %v124 : i32
%v126 = arith.bitcast %v125 : i32 to f32
%v127 = arith.andi %v103, %v123 : i32
%v128 = arith.bitcast %v127 : i32 to f32
%v129 = arith.constant -65536 : i32
%v130 = arith.constant 16 : i32
%v131 = arith.shli %v104, %v130 : i32
%v132 = arith.bitcast %v131 : i32 to f32
%v133 = arith.andi %v104, %v129 : i32
%v134 = arith.bitcast %v133 : i32 to f32
%v135 = arith.constant -65536 : i32
%v136 = arith.constant 16 : i32
%v137 = arith.shli %v107, %v136 : i32
%v138 = arith.bitcast %v137 : i32 to f32
%v139 = arith.andi %v107, %v135 : i32
%v140 = arith.bitcast %v139 : i32 to f32
%v141 = arith.constant -65536 : i32
%v142 = arith.constant 16 : i32
%v143 = arith.shli %v108, %v142 : i32
%v144 = arith.bitcast %v143 : i32 to f32
%v145 = arith.andi %v108, %v141 : i32
%v146 = arith.bitcast %v145 : i32 to f32
%v147 = arith.constant -65536 : i32
%v148 = arith.constant 16 : i32
%v149 = arith.shli %v109, %v148 : i32
%v150 = arith.bitcast %v149 : i32 to f32
%v151 = arith.andi %v109, %v147 : i32
%v152 = arith.bitcast %v151 : i32 to f32
%v153 = arith.constant -65536 : i32
%v154 = arith.constant 16 : i32
%v155 = arith.shli %v110, %v154 : i32
%v156 = arith.bitcast %v155 : i32 to f32
%v157 = arith.andi %v110, %v153 : i32
%v158 = arith.bitcast %v157 : i32 to f32
%v159 = arith.constant 1024 : i32
%v160 = arith.muli %v7, %v159 : i32
%v161 = arith.constant 0 : i64
%v162 = arith.constant 8 : i32
%v163 = arith.muli %v5, %v162 : i32
%v164 = arith.extsi %v163 : i32 to i64
%v165 = arith.subi %v161, %v164 : i64
%v166 = arith.constant 4 : i32
%v167 = arith.shrui %v5, %v166 : i32
%v168 = arith.constant 15 : i32
%v169 = arith.andi %v5, %v168 : i32
%v170 = arith.constant 16 : i32
%v171 = arith.muli %v169, %v170 : i32
%v172 = arith.extsi %v171 : i32 to i64
%v173 = arith.addi %v165, %v172 : i64
%v174 = llvm.getelementptr %v36[%v173] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v175 = arith.extsi %v167 : i32 to i64
%v176 = arith.constant 24704 : i64
%v177 = arith.muli %v175, %v176 : i64
%v178 = llvm.getelementptr %v174[%v177] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v179 = arith.addi %v18, %v160 : i32
%v180 = arith.constant 16 : i32
%v181 = arith.muli %v5, %v180 : i32
%v182 = arith.addi %v179, %v181 : i32
%v183 = arith.constant 0 : i32
%v184 = arith.constant 0 : i32
%v185 = arith.addi %v16, %v184 : i32
%v186 = arith.addi %v182, %v183 : i32
%v187 = arith.extsi %v185 : i32 to i64
%v188 = arith.constant 24704 : i64
%v189 = arith.muli %v187, %v188 : i64
%v190 = llvm.getelementptr %v178[%v189] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v191 = arith.constant 0 : i32
%v192 = arith.addi %v186, %v191 : i32
llvm.inline_asm has_side_effects asm_dialect = att "cp.async.cg.shared.global [$0], [$1], 16;", "r,l,~{memory}" %v192, %v190 : (i32, !llvm.ptr<1>) -> ()
%v193 = arith.constant 512 : i32
%v194 = arith.addi %v186, %v193 : i32
%v195 = llvm.getelementptr %v190[49408] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
llvm.inline_asm has_side_effects asm_dialect = att "cp.async.cg.shared.global [$0], [$1], 16;", "r,l,~{memory}" %v194, %v195 : (i32, !llvm.ptr<1>) -> ()
llvm.inline_asm has_side_effects asm_dialect = att "cp.async.commit_group;", "~{memory}"  : () -> ()
%v196 = arith.constant 1024 : i32
%v197 = arith.constant 4 : i32
%v198 = arith.addi %v16, %v197 : i32
%v199 = arith.addi %v182, %v196 : i32
%v200 = arith.extsi %v198 : i32 to i64
%v201 = arith.constant 24704 : i64
%v202 = arith.muli %v200, %v201 : i64
%v203 = llvm.getelementptr %v178[%v202] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v204 = arith.constant 0 : i32
%v205 = arith.addi %v199, %v204 : i32
llvm.inline_asm has_side_effects asm_dialect = att "cp.async.cg.shared.global [$0], [$1], 16;", "r,l,~{memory}" %v205, %v203 : (i32, !llvm.ptr<1>) -> ()
%v206 = arith.constant 512 : i32
%v207 = arith.addi %v199, %v206 : i32
%v208 = llvm.getelementptr %v203[49408] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
llvm.inline_asm has_side_effects asm_dialect = att "cp.async.cg.shared.global [$0], [$1], 16;", "r,l,~{memory}" %v207, %v208 : (i32, !llvm.ptr<1>) -> ()
llvm.inline_asm has_side_effects asm_dialect = att "cp.async.commit_group;", "~{memory}"  : () -> ()
%v209 = arith.constant 0 : i32
%v210 = arith.constant 2048 : i32
%v211 = arith.constant 0 : i32
%v213 = arith.constant 0 : i32
%v214 = arith.constant 8 : i32
%v215 = arith.constant 4 : i32
%v212:9 = scf.for %i212 = %v213 to %v214 step %v215 iter_args(%a212_0 = %v209, %a212_1 = %v210, %a212_2 = %v211, %a212_3 = %v88, %a212_4 = %v89, %a212_5 = %v90, %a212_6 = %v91, %a212_7 = %v92, %a212_8 = %v93) -> (i32, i32, i32, i32, i32, i32, i32, i32, i32) : i32 {
%v216 = arith.constant 8 : i32
%v217 = arith.addi %i212, %v216 : i32
llvm.inline_asm has_side_effects asm_dialect = att "cp.async.wait_group 1;", "~{memory}"  : () -> ()
llvm.inline_asm has_side_effects asm_dialect = att "bar.warp.sync -1;", "~{memory}"  : () -> ()
%v218 = arith.constant 8 : i32
%v219 = arith.cmpi slt, %v217, %v218 : i32
scf.if %v219 {
%v221 = arith.addi %v16, %v217 : i32
%v222 = arith.addi %v182, %a212_1 : i32
%v223 = arith.extsi %v221 : i32 to i64
%v224 = arith.constant 24704 : i64
%v225 = arith.muli %v223, %v224 : i64
%v226 = llvm.getelementptr %v178[%v225] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v227 = arith.constant 0 : i32
%v228 = arith.addi %v222, %v227 : i32
llvm.inline_asm has_side_effects asm_dialect = att "cp.async.cg.shared.global [$0], [$1], 16;", "r,l,~{memory}" %v228, %v226 : (i32, !llvm.ptr<1>) -> ()
%v229 = arith.constant 512 : i32
%v230 = arith.addi %v222, %v229 : i32
%v231 = llvm.getelementptr %v226[49408] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
llvm.inline_asm has_side_effects asm_dialect = att "cp.async.cg.shared.global [$0], [$1], 16;", "r,l,~{memory}" %v230, %v231 : (i32, !llvm.ptr<1>) -> ()
}
llvm.inline_asm has_side_effects asm_dialect = att "cp.async.commit_group;", "~{memory}"  : () -> ()
%v232 = arith.addi %a212_0, %v160 : i32
%v233 = arith.constant 8 : i32
%v234 = arith.muli %v5, %v233 : i32
%v235 = arith.addi %v232, %v234 : i32
%v236 = arith.extsi %v235 : i32 to i64
%v237 = llvm.getelementptr %v17[%v236] : (!llvm.ptr<3>, i64) -> !llvm.ptr<3>, i8
%v238 = llvm.getelementptr %v237[0] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8
%v239 = llvm.load %v238 {alignment = 8 : i64} : !llvm.ptr<3> -> vector<2xi32>
%v240 = vector.extract %v239[0] : i32 from vector<2xi32>
%v241 = vector.extract %v239[1] : i32 from vector<2xi32>
%v242 = llvm.getelementptr %v237[256] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8
%v243 = llvm.load %v242 {alignment = 8 : i64} : !llvm.ptr<3> -> vector<2xi32>
%v244 = vector.extract %v243[0] : i32 from vector<2xi32>
%v245 = vector.extract %v243[1] : i32 from vector<2xi32>
%v246 = llvm.getelementptr %v237[512] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8
%v247 = llvm.load %v246 {alignment = 8 : i64} : !llvm.ptr<3> -> vector<2xi32>
%v248 = vector.extract %v247[0] : i32 from vector<2xi32>
%v249 = vector.extract %v247[1] : i32 from vector<2xi32>
%v250 = llvm.getelementptr %v237[768] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8
%v251 = llvm.load %v250 {alignment = 8 : i64} : !llvm.ptr<3> -> vector<2xi32>
%v252 = vector.extract %v251[0] : i32 from vector<2xi32>
%v253 = vector.extract %v251[1] : i32 from vector<2xi32>
%v254 = arith.addi %v16, %i212 : i32
%v255 = arith.extsi %v254 : i32 to i64
%v256 = arith.constant 4096 : i64
%v257 = arith.muli %v255, %v256 : i64
%v258 = llvm.getelementptr %v45[%v257] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v259 = arith.constant -65536 : i32
%v260 = arith.constant 16 : i32
%v261 = arith.shli %a212_3, %v260 : i32
%v262 = arith.bitcast %v261 : i32 to f32
%v263 = arith.andi %a212_3, %v259 : i32
%v264 = arith.bitcast %v263 : i32 to f32
%v265 = arith.constant -65536 : i32
%v266 = arith.constant 16 : i32
%v267 = arith.shli %a212_4, %v266 : i32
%v268 = arith.bitcast %v267 : i32 to f32
%v269 = arith.andi %a212_4, %v265 : i32
%v270 = arith.bitcast %v269 : i32 to f32
%v271 = arith.constant -65536 : i32
%v272 = arith.constant 16 : i32
%v273 = arith.shli %a212_5, %v272 : i32
%v274 = arith.bitcast %v273 : i32 to f32
%v275 = arith.andi %a212_5, %v271 : i32
%v276 = arith.bitcast %v275 : i32 to f32
%v277 = arith.constant -65536 : i32
%v278 = arith.constant 16 : i32
%v279 = arith.shli %a212_6, %v278 : i32
%v280 = arith.bitcast %v279 : i32 to f32
%v281 = arith.andi %a212_6, %v277 : i32
%v282 = arith.bitcast %v281 : i32 to f32
%v283 = arith.constant -65536 : i32
%v284 = arith.constant 16 : i32
%v285 = arith.shli %a212_7, %v284 : i32
%v286 = arith.bitcast %v285 : i32 to f32
%v287 = arith.andi %a212_7, %v283 : i32
%v288 = arith.bitcast %v287 : i32 to f32
%v289 = arith.constant -65536 : i32
%v290 = arith.constant 16 : i32
%v291 = arith.shli %a212_8, %v290 : i32
%v292 = arith.bitcast %v291 : i32 to f32
%v293 = arith.andi %a212_8, %v289 : i32
%v294 = arith.bitcast %v293 : i32 to f32
%v295 = arith.constant -65536 : i32
%v296 = arith.constant 16 : i32
%v297 = arith.shli %v240, %v296 : i32
%v298 = arith.bitcast %v297 : i32 to f32
%v299 = arith.andi %v240, %v295 : i32
%v300 = arith.bitcast %v299 : i32 to f32
%v301 = arith.constant -65536 : i32
%v302 = arith.constant 16 : i32
%v303 = arith.shli %v241, %v302 : i32
%v304 = arith.bitcast %v303 : i32 to f32
%v305 = arith.andi %v241, %v301 : i32
%v306 = arith.bitcast %v305 : i32 to f32
%v307 = arith.constant -65536 : i32
%v308 = arith.constant 16 : i32
%v309 = arith.shli %v244, %v308 : i32
%v310 = arith.bitcast %v309 : i32 to f32
%v311 = arith.andi %v244, %v307 : i32
%v312 = arith.bitcast %v311 : i32 to f32
%v313 = arith.constant -65536 : i32
%v314 = arith.constant 16 : i32
%v315 = arith.shli %v245, %v314 : i32
%v316 = arith.bitcast %v315 : i32 to f32
%v317 = arith.andi %v245, %v313 : i32
%v318 = arith.bitcast %v317 : i32 to f32
%v319 = arith.constant -65536 : i32
%v320 = arith.constant 16 : i32
%v321 = arith.shli %v248, %v320 : i32
%v322 = arith.bitcast %v321 : i32 to f32
%v323 = arith.andi %v248, %v319 : i32
%v324 = arith.bitcast %v323 : i32 to f32
%v325 = arith.constant -65536 : i32
%v326 = arith.constant 16 : i32
%v327 = arith.shli %v249, %v326 : i32
%v328 = arith.bitcast %v327 : i32 to f32
%v329 = arith.andi %v249, %v325 : i32
%v330 = arith.bitcast %v329 : i32 to f32
%v331 = arith.constant -65536 : i32
%v332 = arith.constant 16 : i32
%v333 = arith.shli %v252, %v332 : i32
%v334 = arith.bitcast %v333 : i32 to f32
%v335 = arith.andi %v252, %v331 : i32
%v336 = arith.bitcast %v335 : i32 to f32
%v337 = arith.constant -65536 : i32
%v338 = arith.constant 16 : i32
%v339 = arith.shli %v253, %v338 : i32
%v340 = arith.bitcast %v339 : i32 to f32
%v341 = arith.andi %v253, %v337 : i32
%v342 = arith.bitcast %v341 : i32 to f32
%v343 = arith.mulf %v114, %v262 fastmath<contract> : f32
%v344 = llvm.intr.fma(%v116, %v274, %v343) : (f32, f32, f32) -> f32
%v345 = llvm.intr.fma(%v120, %v286, %v344) : (f32, f32, f32) -> f32
%v346 = llvm.intr.fma(%v122, %v298, %v345) : (f32, f32, f32) -> f32
%v347 = arith.mulf %v126, %v264 fastmath<contract> : f32
%v348 = llvm.intr.fma(%v128, %v276, %v347) : (f32, f32, f32) -> f32
%v349 = llvm.intr.fma(%v132, %v288, %v348) : (f32, f32, f32) -> f32
%v350 = llvm.intr.fma(%v134, %v300, %v349) : (f32, f32, f32) -> f32
%v351 = arith.mulf %v138, %v268 fastmath<contract> : f32
%v352 = llvm.intr.fma(%v140, %v280, %v351) : (f32, f32, f32) -> f32
%v353 = llvm.intr.fma(%v144, %v292, %v352) : (f32, f32, f32) -> f32
%v354 = llvm.intr.fma(%v146, %v304, %v353) : (f32, f32, f32) -> f32
%v355 = arith.mulf %v150, %v270 fastmath<contract> : f32
%v356 = llvm.intr.fma(%v152, %v282, %v355) : (f32, f32, f32) -> f32
%v357 = llvm.intr.fma(%v156, %v294, %v356) : (f32, f32, f32) -> f32
%v358 = llvm.intr.fma(%v158, %v306, %v357) : (f32, f32, f32) -> f32
%v359 = arith.constant -1.44269504088896339e+00 : f32
%v360 = arith.constant 1.00000000000000000e+00 : f32
%v361 = arith.mulf %v346, %v359 fastmath<contract> : f32
%v362 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v361 : (f32) -> f32
%v363 = arith.addf %v362, %v360 fastmath<contract> : f32
%v364 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v363 : (f32) -> f32
%v365 = arith.mulf %v350, %v359 fastmath<contract> : f32
%v366 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v365 : (f32) -> f32
%v367 = arith.addf %v366, %v360 fastmath<contract> : f32
%v368 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v367 : (f32) -> f32
%v369 = arith.mulf %v354, %v359 fastmath<contract> : f32
%v370 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v369 : (f32) -> f32
%v371 = arith.addf %v370, %v360 fastmath<contract> : f32
%v372 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v371 : (f32) -> f32
%v373 = arith.mulf %v358, %v359 fastmath<contract> : f32
%v374 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v373 : (f32) -> f32
%v375 = arith.addf %v374, %v360 fastmath<contract> : f32
%v376 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v375 : (f32) -> f32
%v377 = arith.mulf %v346, %v364 fastmath<contract> : f32
%v378 = arith.mulf %v350, %v368 fastmath<contract> : f32
%v379 = arith.mulf %v354, %v372 fastmath<contract> : f32
%v380 = arith.mulf %v358, %v376 fastmath<contract> : f32
%v381 = arith.mulf %v377, %v377 fastmath<contract> : f32
%v382 = arith.mulf %v379, %v379 fastmath<contract> : f32
%v383 = llvm.intr.fma(%v378, %v378, %v381) : (f32, f32, f32) -> f32
%v384 = llvm.intr.fma(%v380, %v380, %v382) : (f32, f32, f32) -> f32
%v385 = arith.addf %v383, %v384 fastmath<contract> : f32
%v386 = arith.constant 1 : i32
%v387 = arith.constant 32 : i32
%v388, %p388 = gpu.shuffle xor %v385, %v386, %v387 : f32
%v389 = arith.addf %v385, %v388 fastmath<contract> : f32
%v390 = arith.constant 2 : i32
%v391 = arith.constant 32 : i32
%v392, %p392 = gpu.shuffle xor %v389, %v390, %v391 : f32
%v393 = arith.addf %v389, %v392 fastmath<contract> : f32
%v394 = arith.constant 4 : i32
%v395 = arith.constant 32 : i32
%v396, %p396 = gpu.shuffle xor %v393, %v394, %v395 : f32
%v397 = arith.addf %v393, %v396 fastmath<contract> : f32
%v398 = arith.constant 8 : i32
%v399 = arith.constant 32 : i32
%v400, %p400 = gpu.shuffle xor %v397, %v398, %v399 : f32
%v401 = arith.addf %v397, %v400 fastmath<contract> : f32
%v402 = arith.constant 16 : i32
%v403 = arith.constant 32 : i32
%v404, %p404 = gpu.shuffle xor %v401, %v402, %v403 : f32
%v405 = arith.addf %v401, %v404 fastmath<contract> : f32
%v406 = arith.addf %v405, %v94 fastmath<contract> : f32
%v407 = llvm.inline_asm asm_dialect = att "rsqrt.approx.ftz.f32 $0, $1;", "=f,f" %v406 : (f32) -> f32
%v408 = arith.mulf %v407, %v48 fastmath<contract> : f32
%v409 = arith.mulf %v377, %v408 fastmath<contract> : f32
%v410 = arith.mulf %v378, %v408 fastmath<contract> : f32
%v411 = arith.mulf %v379, %v408 fastmath<contract> : f32
%v412 = arith.mulf %v380, %v408 fastmath<contract> : f32
%v413 = llvm.inline_asm asm_dialect = att "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f" %v410, %v409 : (f32, f32) -> i32
%v414 = llvm.inline_asm asm_dialect = att "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f" %v412, %v411 : (f32, f32) -> i32
%v415 = llvm.getelementptr %v258[0] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
%v416 = llvm.mlir.undef : vector<2xi32>
%v417 = arith.constant 0 : i32
%v418 = llvm.insertelement %v413, %v416[%v417 : i32] : vector<2xi32>
%v419 = arith.constant 1 : i32
%v420 = llvm.insertelement %v414, %v418[%v419 : i32] : vector<2xi32>
llvm.store %v420, %v415 {alignment = 8 : i64} : vector<2xi32>, !llvm.ptr<1>
%v421 = arith.mulf %v114, %v274 fastmath<contract> : f32
%v422 = llvm.intr.fma(%v116, %v286, %v421) : (f32, f32, f32) -> f32
%v423 = llvm.intr.fma(%v120, %v298, %v422) : (f32, f32, f32) -> f32
%v424 = llvm.intr.fma(%v122, %v310, %v423) : (f32, f32, f32) -> f32
%v425 = arith.mulf %v126, %v276 fastmath<contract> : f32
%v426 = llvm.intr.fma(%v128, %v288, %v425) : (f32, f32, f32) -> f32
%v427 = llvm.intr.fma(%v132, %v300, %v426) : (f32, f32, f32) -> f32
%v428 = llvm.intr.fma(%v134, %v312, %v427) : (f32, f32, f32) -> f32
%v429 = arith.mulf %v138, %v280 fastmath<contract> : f32
%v430 = llvm.intr.fma(%v140, %v292, %v429) : (f32, f32, f32) -> f32
%v431 = llvm.intr.fma(%v144, %v304, %v430) : (f32, f32, f32) -> f32
%v432 = llvm.intr.fma(%v146, %v316, %v431) : (f32, f32, f32) -> f32
%v433 = arith.mulf %v150, %v282 fastmath<contract> : f32
%v434 = llvm.intr.fma(%v152, %v294, %v433) : (f32, f32, f32) -> f32
%v435 = llvm.intr.fma(%v156, %v306, %v434) : (f32, f32, f32) -> f32
%v436 = llvm.intr.fma(%v158, %v318, %v435) : (f32, f32, f32) -> f32
%v437 = arith.constant -1.44269504088896339e+00 : f32
%v438 = arith.constant 1.00000000000000000e+00 : f32
%v439 = arith.mulf %v424, %v437 fastmath<contract> : f32
%v440 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v439 : (f32) -> f32
%v441 = arith.addf %v440, %v438 fastmath<contract> : f32
%v442 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v441 : (f32) -> f32
%v443 = arith.mulf %v428, %v437 fastmath<contract> : f32
%v444 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v443 : (f32) -> f32
%v445 = arith.addf %v444, %v438 fastmath<contract> : f32
%v446 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v445 : (f32) -> f32
%v447 = arith.mulf %v432, %v437 fastmath<contract> : f32
%v448 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v447 : (f32) -> f32
%v449 = arith.addf %v448, %v438 fastmath<contract> : f32
%v450 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v449 : (f32) -> f32
%v451 = arith.mulf %v436, %v437 fastmath<contract> : f32
%v452 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v451 : (f32) -> f32
%v453 = arith.addf %v452, %v438 fastmath<contract> : f32
%v454 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v453 : (f32) -> f32
%v455 = arith.mulf %v424, %v442 fastmath<contract> : f32
%v456 = arith.mulf %v428, %v446 fastmath<contract> : f32
%v457 = arith.mulf %v432, %v450 fastmath<contract> : f32
%v458 = arith.mulf %v436, %v454 fastmath<contract> : f32
%v459 = arith.mulf %v455, %v455 fastmath<contract> : f32
%v460 = arith.mulf %v457, %v457 fastmath<contract> : f32
%v461 = llvm.intr.fma(%v456, %v456, %v459) : (f32, f32, f32) -> f32
%v462 = llvm.intr.fma(%v458, %v458, %v460) : (f32, f32, f32) -> f32
%v463 = arith.addf %v461, %v462 fastmath<contract> : f32
%v464 = arith.constant 1 : i32
%v465 = arith.constant 32 : i32
%v466, %p466 = gpu.shuffle xor %v463, %v464, %v465 : f32
%v467 = arith.addf %v463, %v466 fastmath<contract> : f32
%v468 = arith.constant 2 : i32
%v469 = arith.constant 32 : i32
%v470, %p470 = gpu.shuffle xor %v467, %v468, %v469 : f32
%v471 = arith.addf %v467, %v470 fastmath<contract> : f32
%v472 = arith.constant 4 : i32
%v473 = arith.constant 32 : i32
%v474, %p474 = gpu.shuffle xor %v471, %v472, %v473 : f32
%v475 = arith.addf %v471, %v474 fastmath<contract> : f32
%v476 = arith.constant 8 : i32
%v477 = arith.constant 32 : i32
%v478, %p478 = gpu.shuffle xor %v475, %v476, %v477 : f32
%v479 = arith.addf %v475, %v478 fastmath<contract> : f32
%v480 = arith.constant 16 : i32
%v481 = arith.constant 32 : i32
%v482, %p482 = gpu.shuffle xor %v479, %v480, %v481 : f32
%v483 = arith.addf %v479, %v482 fastmath<contract> : f32
%v484 = arith.addf %v483, %v94 fastmath<contract> : f32
%v485 = llvm.inline_asm asm_dialect = att "rsqrt.approx.ftz.f32 $0, $1;", "=f,f" %v484 : (f32) -> f32
%v486 = arith.mulf %v485, %v48 fastmath<contract> : f32
%v487 = arith.mulf %v455, %v486 fastmath<contract> : f32
%v488 = arith.mulf %v456, %v486 fastmath<contract> : f32
%v489 = arith.mulf %v457, %v486 fastmath<contract> : f32
%v490 = arith.mulf %v458, %v486 fastmath<contract> : f32
%v491 = llvm.inline_asm asm_dialect = att "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f" %v488, %v487 : (f32, f32) -> i32
%v492 = llvm.inline_asm asm_dialect = att "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f" %v490, %v489 : (f32, f32) -> i32
%v493 = llvm.getelementptr %v258[4096] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
%v494 = llvm.mlir.undef : vector<2xi32>
%v495 = arith.constant 0 : i32
%v496 = llvm.insertelement %v491, %v494[%v495 : i32] : vector<2xi32>
%v497 = arith.constant 1 : i32
%v498 = llvm.insertelement %v492, %v496[%v497 : i32] : vector<2xi32>
llvm.store %v498, %v493 {alignment = 8 : i64} : vector<2xi32>, !llvm.ptr<1>
%v499 = arith.mulf %v114, %v286 fastmath<contract> : f32
%v500 = llvm.intr.fma(%v116, %v298, %v499) : (f32, f32, f32) -> f32
%v501 = llvm.intr.fma(%v120, %v310, %v500) : (f32, f32, f32) -> f32
%v502 = llvm.intr.fma(%v122, %v322, %v501) : (f32, f32, f32) -> f32
%v503 = arith.mulf %v126, %v288 fastmath<contract> : f32
%v504 = llvm.intr.fma(%v128, %v300, %v503) : (f32, f32, f32) -> f32
%v505 = llvm.intr.fma(%v132, %v312, %v504) : (f32, f32, f32) -> f32
%v506 = llvm.intr.fma(%v134, %v324, %v505) : (f32, f32, f32) -> f32
%v507 = arith.mulf %v138, %v292 fastmath<contract> : f32
%v508 = llvm.intr.fma(%v140, %v304, %v507) : (f32, f32, f32) -> f32
%v509 = llvm.intr.fma(%v144, %v316, %v508) : (f32, f32, f32) -> f32
%v510 = llvm.intr.fma(%v146, %v328, %v509) : (f32, f32, f32) -> f32
%v511 = arith.mulf %v150, %v294 fastmath<contract> : f32
%v512 = llvm.intr.fma(%v152, %v306, %v511) : (f32, f32, f32) -> f32
%v513 = llvm.intr.fma(%v156, %v318, %v512) : (f32, f32, f32) -> f32
%v514 = llvm.intr.fma(%v158, %v330, %v513) : (f32, f32, f32) -> f32
%v515 = arith.constant -1.44269504088896339e+00 : f32
%v516 = arith.constant 1.00000000000000000e+00 : f32
%v517 = arith.mulf %v502, %v515 fastmath<contract> : f32
%v518 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v517 : (f32) -> f32
%v519 = arith.addf %v518, %v516 fastmath<contract> : f32
%v520 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v519 : (f32) -> f32
%v521 = arith.mulf %v506, %v515 fastmath<contract> : f32
%v522 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v521 : (f32) -> f32
%v523 = arith.addf %v522, %v516 fastmath<contract> : f32
%v524 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v523 : (f32) -> f32
%v525 = arith.mulf %v510, %v515 fastmath<contract> : f32
%v526 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v525 : (f32) -> f32
%v527 = arith.addf %v526, %v516 fastmath<contract> : f32
%v528 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v527 : (f32) -> f32
%v529 = arith.mulf %v514, %v515 fastmath<contract> : f32
%v530 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v529 : (f32) -> f32
%v531 = arith.addf %v530, %v516 fastmath<contract> : f32
%v532 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v531 : (f32) -> f32
%v533 = arith.mulf %v502, %v520 fastmath<contract> : f32
%v534 = arith.mulf %v506, %v524 fastmath<contract> : f32
%v535 = arith.mulf %v510, %v528 fastmath<contract> : f32
%v536 = arith.mulf %v514, %v532 fastmath<contract> : f32
%v537 = arith.mulf %v533, %v533 fastmath<contract> : f32
%v538 = arith.mulf %v535, %v535 fastmath<contract> : f32
%v539 = llvm.intr.fma(%v534, %v534, %v537) : (f32, f32, f32) -> f32
%v540 = llvm.intr.fma(%v536, %v536, %v538) : (f32, f32, f32) -> f32
%v541 = arith.addf %v539, %v540 fastmath<contract> : f32
%v542 = arith.constant 1 : i32
%v543 = arith.constant 32 : i32
%v544, %p544 = gpu.shuffle xor %v541, %v542, %v543 : f32
%v545 = arith.addf %v541, %v544 fastmath<contract> : f32
%v546 = arith.constant 2 : i32
%v547 = arith.constant 32 : i32
%v548, %p548 = gpu.shuffle xor %v545, %v546, %v547 : f32
%v549 = arith.addf %v545, %v548 fastmath<contract> : f32
%v550 = arith.constant 4 : i32
%v551 = arith.constant 32 : i32
%v552, %p552 = gpu.shuffle xor %v549, %v550, %v551 : f32
%v553 = arith.addf %v549, %v552 fastmath<contract> : f32
%v554 = arith.constant 8 : i32
%v555 = arith.constant 32 : i32
%v556, %p556 = gpu.shuffle xor %v553, %v554, %v555 : f32
%v557 = arith.addf %v553, %v556 fastmath<contract> : f32
%v558 = arith.constant 16 : i32
%v559 = arith.constant 32 : i32
%v560, %p560 = gpu.shuffle xor %v557, %v558, %v559 : f32
%v561 = arith.addf %v557, %v560 fastmath<contract> : f32
%v562 = arith.addf %v561, %v94 fastmath<contract> : f32
%v563 = llvm.inline_asm asm_dialect = att "rsqrt.approx.ftz.f32 $0, $1;", "=f,f" %v562 : (f32) -> f32
%v564 = arith.mulf %v563, %v48 fastmath<contract> : f32
%v565 = arith.mulf %v533, %v564 fastmath<contract> : f32
%v566 = arith.mulf %v534, %v564 fastmath<contract> : f32
%v567 = arith.mulf %v535, %v564 fastmath<contract> : f32
%v568 = arith.mulf %v536, %v564 fastmath<contract> : f32
%v569 = llvm.inline_asm asm_dialect = att "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f" %v566, %v565 : (f32, f32) -> i32
%v570 = llvm.inline_asm asm_dialect = att "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f" %v568, %v567 : (f32, f32) -> i32
%v571 = llvm.getelementptr %v258[8192] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
%v572 = llvm.mlir.undef : vector<2xi32>
%v573 = arith.constant 0 : i32
%v574 = llvm.insertelement %v569, %v572[%v573 : i32] : vector<2xi32>
%v575 = arith.constant 1 : i32
%v576 = llvm.insertelement %v570, %v574[%v575 : i32] : vector<2xi32>
llvm.store %v576, %v571 {alignment = 8 : i64} : vector<2xi32>, !llvm.ptr<1>
%v577 = arith.mulf %v114, %v298 fastmath<contract> : f32
%v578 = llvm.intr.fma(%v116, %v310, %v577) : (f32, f32, f32) -> f32
%v579 = llvm.intr.fma(%v120, %v322, %v578) : (f32, f32, f32) -> f32
%v580 = llvm.intr.fma(%v122, %v334, %v579) : (f32, f32, f32) -> f32
%v581 = arith.mulf %v126, %v300 fastmath<contract> : f32
%v582 = llvm.intr.fma(%v128, %v312, %v581) : (f32, f32, f32) -> f32
%v583 = llvm.intr.fma(%v132, %v324, %v582) : (f32, f32, f32) -> f32
%v584 = llvm.intr.fma(%v134, %v336, %v583) : (f32, f32, f32) -> f32
%v585 = arith.mulf %v138, %v304 fastmath<contract> : f32
%v586 = llvm.intr.fma(%v140, %v316, %v585) : (f32, f32, f32) -> f32
%v587 = llvm.intr.fma(%v144, %v328, %v586) : (f32, f32, f32) -> f32
%v588 = llvm.intr.fma(%v146, %v340, %v587) : (f32, f32, f32) -> f32
%v589 = arith.mulf %v150, %v306 fastmath<contract> : f32
%v590 = llvm.intr.fma(%v152, %v318, %v589) : (f32, f32, f32) -> f32
%v591 = llvm.intr.fma(%v156, %v330, %v590) : (f32, f32, f32) -> f32
%v592 = llvm.intr.fma(%v158, %v342, %v591) : (f32, f32, f32) -> f32
%v593 = arith.constant -1.44269504088896339e+00 : f32
%v594 = arith.constant 1.00000000000000000e+00 : f32
%v595 = arith.mulf %v580, %v593 fastmath<contract> : f32
%v596 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v595 : (f32) -> f32
%v597 = arith.addf %v596, %v594 fastmath<contract> : f32
%v598 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v597 : (f32) -> f32
%v599 = arith.mulf %v584, %v593 fastmath<contract> : f32
%v600 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v599 : (f32) -> f32
%v601 = arith.addf %v600, %v594 fastmath<contract> : f32
%v602 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v601 : (f32) -> f32
%v603 = arith.mulf %v588, %v593 fastmath<contract> : f32
%v604 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v603 : (f32) -> f32
%v605 = arith.addf %v604, %v594 fastmath<contract> : f32
%v606 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v605 : (f32) -> f32
%v607 = arith.mulf %v592, %v593 fastmath<contract> : f32
%v608 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v607 : (f32) -> f32
%v609 = arith.addf %v608, %v594 fastmath<contract> : f32
%v610 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v609 : (f32) -> f32
%v611 = arith.mulf %v580, %v598 fastmath<contract> : f32
%v612 = arith.mulf %v584, %v602 fastmath<contract> : f32
%v613 = arith.mulf %v588, %v606 fastmath<contract> : f32
%v614 = arith.mulf %v592, %v610 fastmath<contract> : f32
%v615 = arith.mulf %v611, %v611 fastmath<contract> : f32
%v616 = arith.mulf %v613, %v613 fastmath<contract> : f32
%v617 = llvm.intr.fma(%v612, %v612, %v615) : (f32, f32, f32) -> f32
%v618 = llvm.intr.fma(%v614, %v614, %v616) : (f32, f32, f32) -> f32
%v619 = arith.addf %v617, %v618 fastmath<contract> : f32
%v620 = arith.constant 1 : i32
%v621 = arith.constant 32 : i32
%v622, %p622 = gpu.shuffle xor %v619, %v620, %v621 : f32
%v623 = arith.addf %v619, %v622 fastmath<contract> : f32
%v624 = arith.constant 2 : i32
%v625 = arith.constant 32 : i32
%v626, %p626 = gpu.shuffle xor %v623, %v624, %v625 : f32
%v627 = arith.addf %v623, %v626 fastmath<contract> : f32
%v628 = arith.constant 4 : i32
%v629 = arith.constant 32 : i32
%v630, %p630 = gpu.shuffle xor %v627, %v628, %v629 : f32
%v631 = arith.addf %v627, %v630 fastmath<contract> : f32
%v632 = arith.constant 8 : i32
%v633 = arith.constant 32 : i32
%v634, %p634 = gpu.shuffle xor %v631, %v632, %v633 : f32
%v635 = arith.addf %v631, %v634 fastmath<contract> : f32
%v636 = arith.constant 16 : i32
%v637 = arith.constant 32 : i32
%v638, %p638 = gpu.shuffle xor %v635, %v636, %v637 : f32
%v639 = arith.addf %v635, %v638 fastmath<contract> : f32
%v640 = arith.addf %v639, %v94 fastmath<contract> : f32
%v641 = llvm.inline_asm asm_dialect = att "rsqrt.approx.ftz.f32 $0, $1;", "=f,f" %v640 : (f32) -> f32
%v642 = arith.mulf %v641, %v48 fastmath<contract> : f32
%v643 = arith.mulf %v611, %v642 fastmath<contract> : f32
%v644 = arith.mulf %v612, %v642 fastmath<contract> : f32
%v645 = arith.mulf %v613, %v642 fastmath<contract> : f32
%v646 = arith.mulf %v614, %v642 fastmath<contract> : f32
%v647 = llvm.inline_asm asm_dialect = att "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f" %v644, %v643 : (f32, f32) -> i32
%v648 = llvm.inline_asm asm_dialect = att "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f" %v646, %v645 : (f32, f32) -> i32
%v649 = llvm.getelementptr %v258[12288] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
%v650 = llvm.mlir.undef : vector<2xi32>
%v651 = arith.constant 0 : i32
%v652 = llvm.insertelement %v647, %v650[%v651 : i32] : vector<2xi32>
%v653 = arith.constant 1 : i32
%v654 = llvm.insertelement %v648, %v652[%v653 : i32] : vector<2xi32>
llvm.store %v654, %v649 {alignment = 8 : i64} : vector<2xi32>, !llvm.ptr<1>
%v655 = arith.constant 1024 : i32
%v656 = arith.addi %a212_0, %v655 : i32
%v657 = arith.constant 3072 : i32
%v658 = arith.cmpi eq, %v656, %v657 : i32
%v659 = arith.constant 0 : i32
%v660 = arith.select %v658, %v659, %v656 : i32
%v661 = arith.constant 0 : i32
%v662 = arith.cmpi eq, %v660, %v661 : i32
%v663 = arith.constant 1 : i32
%v664 = arith.xori %a212_2, %v663 : i32
%v665 = arith.select %v662, %v664, %a212_2 : i32
%v666 = arith.constant 1024 : i32
%v667 = arith.addi %a212_1, %v666 : i32
%v668 = arith.constant 3072 : i32
%v669 = arith.cmpi eq, %v667, %v668 : i32
%v670 = arith.constant 0 : i32
%v671 = arith.select %v669, %v670, %v667 : i32
scf.yield %v660, %v671, %v665, %v244, %v245, %v248, %v249, %v252, %v253 : i32, i32, i32, i32, i32, i32, i32, i32, i32
}
} else {
%v672 = arith.constant 128 : i32
%v673 = arith.muli %v2, %v672 : i32
%v674 = arith.constant 128 : i32
%v675 = arith.muli %v9, %v674 : i32
%v676 = arith.constant 4 : i32
%v677 = arith.muli %v5, %v676 : i32
%v678 = arith.addi %v675, %v677 : i32
%v679 = arith.addi %v673, %v678 : i32
%v680 = arith.constant 2 : i32
%v681 = arith.muli %v679, %v680 : i32
%v682 = arith.extsi %v681 : i32 to i64
%v683 = llvm.getelementptr %x[%v682] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v684 = arith.constant 4096 : i32
%v685 = arith.subi %v679, %v684 : i32
%v686 = arith.constant 2 : i32
%v687 = arith.muli %v685, %v686 : i32
%v688 = arith.extsi %v687 : i32 to i64
%v689 = llvm.getelementptr %v[%v688] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v690 = arith.constant 3 : i32
%v691 = arith.subi %v16, %v690 : i32
%v692 = arith.constant 0 : i32
%v693 = arith.addi %v691, %v692 : i32
%v694 = arith.constant 0 : i32
%v695 = arith.maxsi %v693, %v694 : i32
%v696 = arith.extsi %v695 : i32 to i64
%v697 = arith.constant 24704 : i64
%v698 = arith.muli %v696, %v697 : i64
%v699 = llvm.getelementptr %v683[%v698] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v700 = arith.cmpi eq, %v695, %v693 : i32
%v701 = arith.constant 1 : i32
%v702 = arith.addi %v691, %v701 : i32
%v703 = arith.constant 0 : i32
%v704 = arith.maxsi %v702, %v703 : i32
%v705 = arith.extsi %v704 : i32 to i64
%v706 = arith.constant 24704 : i64
%v707 = arith.muli %v705, %v706 : i64
%v708 = llvm.getelementptr %v683[%v707] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v709 = arith.cmpi eq, %v704, %v702 : i32
%v710 = arith.constant 2 : i32
%v711 = arith.addi %v691, %v710 : i32
%v712 = arith.constant 0 : i32
%v713 = arith.maxsi %v711, %v712 : i32
%v714 = arith.extsi %v713 : i32 to i64
%v715 = arith.constant 24704 : i64
%v716 = arith.muli %v714, %v715 : i64
%v717 = llvm.getelementptr %v683[%v716] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v718 = arith.cmpi eq, %v713, %v711 : i32
%v719 = llvm.load %v699 {alignment = 8 : i64} : !llvm.ptr<1> -> vector<2xi32>
%v720 = vector.extract %v719[0] : i32 from vector<2xi32>
%v721 = vector.extract %v719[1] : i32 from vector<2xi32>
%v722 = llvm.load %v708 {alignment = 8 : i64} : !llvm.ptr<1> -> vector<2xi32>
%v723 = vector.extract %v722[0] : i32 from vector<2xi32>
%v724 = vector.extract %v722[1] : i32 from vector<2xi32>
%v725 = llvm.load %v717 {alignment = 8 : i64} : !llvm.ptr<1> -> vector<2xi32>
%v726 = vector.extract %v725[0] : i32 from vector<2xi32>
%v727 = vector.extract %v725[1] : i32 from vector<2xi32>
%v728 = arith.constant 0 : i32
%v729 = arith.select %v700, %v720, %v728 : i32
%v730 = arith.select %v700, %v721, %v728 : i32
%v731 = arith.select %v709, %v723, %v728 : i32
%v732 = arith.select %v709, %v724, %v728 : i32
%v733 = arith.select %v718, %v726, %v728 : i32
%v734 = arith.select %v718, %v727, %v728 : i32
%v735 = arith.constant 9.99999999999999955e-07 : f32
%v736 = arith.constant 8 : i32
%v737 = arith.muli %v679, %v736 : i32
%v738 = arith.extsi %v737 : i32 to i64
%v739 = llvm.getelementptr %w[%v738] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v740 = llvm.getelementptr %v739[0] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
%v741 = llvm.load %v740 {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>
%v742 = vector.extract %v741[0] : i32 from vector<4xi32>
%v743 = vector.extract %v741[1] : i32 from vector<4xi32>
%v744 = vector.extract %v741[2] : i32 from vector<4xi32>
%v745 = vector.extract %v741[3] : i32 from vector<4xi32>
%v746 = llvm.getelementptr %v739[16] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
%v747 = llvm.load %v746 {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>
%v748 = vector.extract %v747[0] : i32 from vector<4xi32>
%v749 = vector.extract %v747[1] : i32 from vector<4xi32>
%v750 = vector.extract %v747[2] : i32 from vector<4xi32>
%v751 = vector.extract %v747[3] : i32 from vector<4xi32>
%v752 = arith.constant -65536 : i32
%v753 = arith.constant 16 : i32
%v754 = arith.shli %v742, %v753 : i32
%v755 = arith.bitcast %v754 : i32 to f32
%v756 = arith.andi %v742, %v752 : i32
%v757 = arith.bitcast %v756 : i32 to f32
%v758 = arith.constant -65536 : i32
%v759 = arith.constant 16 : i32
%v760 = arith.shli %v743, %v759 : i32
%v761 = arith.bitcast %v760 : i32 to f32
%v762 = arith.andi %v743, %v758 : i32
%v763 = arith.bitcast %v762 : i32 to f32
%v764 = arith.constant -65536 : i32
%v765 = arith.constant 16 : i32
%v766 = arith.shli %v744, %v765 : i32
%v767 = arith.bitcast %v766 : i32 to f32
%v768 = arith.andi %v744, %v764 : i32
%v769 = arith.bitcast %v768 : i32 to f32
%v770 = arith.constant -65536 : i32
%v771 = arith.constant 16 : i32
%v772 = arith.shli %v745, %v771 : i32
%v773 = arith.bitcast %v772 : i32 to f32
%v774 = arith.andi %v745, %v770 : i32
%v775 = arith.bitcast %v774 : i32 to f32
%v776 = arith.constant -65536 : i32
%v777 = arith.constant 16 : i32
%v778 = arith.shli %v748, %v777 : i32
%v779 = arith.bitcast %v778 : i32 to f32
%v780 = arith.andi %v748, %v776 : i32
%v781 = arith.bitcast %v780 : i32 to f32
%v782 = arith.constant -65536 : i32
%v783 = arith.constant 16 : i32
%v784 = arith.shli %v749, %v783 : i32
%v785 = arith.bitcast %v784 : i32 to f32
%v786 = arith.andi %v749, %v782 : i32
%v787 = arith.bitcast %v786 : i32 to f32
%v788 = arith.constant -65536 : i32
%v789 = arith.constant 16 : i32
%v790 = arith.shli %v750, %v789 : i32
%v791 = arith.bitcast %v790 : i32 to f32
%v792 = arith.andi %v750, %v788 : i32
%v793 = arith.bitcast %v792 : i32 to f32
%v794 = arith.constant -65536 : i32
%v795 = arith.constant 16 : i32
%v796 = arith.shli %v751, %v795 : i32
%v797 = arith.bitcast %v796 : i32 to f32
%v798 = arith.andi %v751, %v794 : i32
%v799 = arith.bitcast %v798 : i32 to f32
%v800 = arith.constant 1024 : i32
%v801 = arith.muli %v7, %v800 : i32
%v802 = arith.constant 0 : i64
%v803 = arith.constant 8 : i32
%v804 = arith.muli %v5, %v803 : i32
%v805 = arith.extsi %v804 : i32 to i64
%v806 = arith.subi %v802, %v805 : i64
%v807 = arith.constant 4 : i32
%v808 = arith.shrui %v5, %v807 : i32
%v809 = arith.constant 15 : i32
%v810 = arith.andi %v5, %v809 : i32
%v811 = arith.constant 16 : i32
%v812 = arith.muli %v810, %v811 : i32
%v813 = arith.extsi %v812 : i32 to i64
%v814 = arith.addi %v806, %v813 : i64
%v815 = llvm.getelementptr %v683[%v814] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v816 = arith.extsi %v808 : i32 to i64
%v817 = arith.constant 24704 : i64
%v818 = arith.muli %v816, %v817 : i64
%v819 = llvm.getelementptr %v815[%v818] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v820 = arith.addi %v18, %v801 : i32
%v821 = arith.constant 16 : i32
%v822 = arith.muli %v5, %v821 : i32
%v823 = arith.addi %v820, %v822 : i32
%v824 = arith.constant 0 : i32
%v825 = arith.constant 0 : i32
%v826 = arith.addi %v16, %v825 : i32
%v827 = arith.addi %v823, %v824 : i32
%v828 = arith.extsi %v826 : i32 to i64
%v829 = arith.constant 24704 : i64
%v830 = arith.muli %v828, %v829 : i64
%v831 = llvm.getelementptr %v819[%v830] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v832 = arith.constant 0 : i32
%v833 = arith.addi %v827, %v832 : i32
llvm.inline_asm has_side_effects asm_dialect = att "cp.async.cg.shared.global [$0], [$1], 16;", "r,l,~{memory}" %v833, %v831 : (i32, !llvm.ptr<1>) -> ()
%v834 = arith.constant 512 : i32
%v835 = arith.addi %v827, %v834 : i32
%v836 = llvm.getelementptr %v831[49408] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
llvm.inline_asm has_side_effects asm_dialect = att "cp.async.cg.shared.global [$0], [$1], 16;", "r,l,~{memory}" %v835, %v836 : (i32, !llvm.ptr<1>) -> ()
llvm.inline_asm has_side_effects asm_dialect = att "cp.async.commit_group;", "~{memory}"  : () -> ()
%v837 = arith.constant 1024 : i32
%v838 = arith.constant 4 : i32
%v839 = arith.addi %v16, %v838 : i32
%v840 = arith.addi %v823, %v837 : i32
%v841 = arith.extsi %v839 : i32 to i64
%v842 = arith.constant 24704 : i64
%v843 = arith.muli %v841, %v842 : i64
%v844 = llvm.getelementptr %v819[%v843] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v845 = arith.constant 0 : i32
%v846 = arith.addi %v840, %v845 : i32
llvm.inline_asm has_side_effects asm_dialect = att "cp.async.cg.shared.global [$0], [$1], 16;", "r,l,~{memory}" %v846, %v844 : (i32, !llvm.ptr<1>) -> ()
%v847 = arith.constant 512 : i32
%v848 = arith.addi %v840, %v847 : i32
%v849 = llvm.getelementptr %v844[49408] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
llvm.inline_asm has_side_effects asm_dialect = att "cp.async.cg.shared.global [$0], [$1], 16;", "r,l,~{memory}" %v848, %v849 : (i32, !llvm.ptr<1>) -> ()
llvm.inline_asm has_side_effects asm_dialect = att "cp.async.commit_group;", "~{memory}"  : () -> ()
%v850 = arith.constant 0 : i32
%v851 = arith.constant 2048 : i32
%v852 = arith.constant 0 : i32
%v854 = arith.constant 0 : i32
%v855 = arith.constant 8 : i32
%v856 = arith.constant 4 : i32
%v853:9 = scf.for %i853 = %v854 to %v855 step %v856 iter_args(%a853_0 = %v850, %a853_1 = %v851, %a853_2 = %v852, %a853_3 = %v729, %a853_4 = %v730, %a853_5 = %v731, %a853_6 = %v732, %a853_7 = %v733, %a853_8 = %v734) -> (i32, i32, i32, i32, i32, i32, i32, i32, i32) : i32 {
%v857 = arith.constant 8 : i32
%v858 = arith.addi %i853, %v857 : i32
llvm.inline_asm has_side_effects asm_dialect = att "cp.async.wait_group 1;", "~{memory}"  : () -> ()
llvm.inline_asm has_side_effects asm_dialect = att "bar.warp.sync -1;", "~{memory}"  : () -> ()
%v859 = arith.constant 8 : i32
%v860 = arith.cmpi slt, %v858, %v859 : i32
scf.if %v860 {
%v862 = arith.addi %v16, %v858 : i32
%v863 = arith.addi %v823, %a853_1 : i32
%v864 = arith.extsi %v862 : i32 to i64
%v865 = arith.constant 24704 : i64
%v866 = arith.muli %v864, %v865 : i64
%v867 = llvm.getelementptr %v819[%v866] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v868 = arith.constant 0 : i32
%v869 = arith.addi %v863, %v868 : i32
llvm.inline_asm has_side_effects asm_dialect = att "cp.async.cg.shared.global [$0], [$1], 16;", "r,l,~{memory}" %v869, %v867 : (i32, !llvm.ptr<1>) -> ()
%v870 = arith.constant 512 : i32
%v871 = arith.addi %v863, %v870 : i32
%v872 = llvm.getelementptr %v867[49408] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
llvm.inline_asm has_side_effects asm_dialect = att "cp.async.cg.shared.global [$0], [$1], 16;", "r,l,~{memory}" %v871, %v872 : (i32, !llvm.ptr<1>) -> ()
}
llvm.inline_asm has_side_effects asm_dialect = att "cp.async.commit_group;", "~{memory}"  : () -> ()
%v873 = arith.addi %a853_0, %v801 : i32
%v874 = arith.constant 8 : i32
%v875 = arith.muli %v5, %v874 : i32
%v876 = arith.addi %v873, %v875 : i32
%v877 = arith.extsi %v876 : i32 to i64
%v878 = llvm.getelementptr %v17[%v877] : (!llvm.ptr<3>, i64) -> !llvm.ptr<3>, i8
%v879 = llvm.getelementptr %v878[0] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8
%v880 = llvm.load %v879 {alignment = 8 : i64} : !llvm.ptr<3> -> vector<2xi32>
%v881 = vector.extract %v880[0] : i32 from vector<2xi32>
%v882 = vector.extract %v880[1] : i32 from vector<2xi32>
%v883 = llvm.getelementptr %v878[256] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8
%v884 = llvm.load %v883 {alignment = 8 : i64} : !llvm.ptr<3> -> vector<2xi32>
%v885 = vector.extract %v884[0] : i32 from vector<2xi32>
%v886 = vector.extract %v884[1] : i32 from vector<2xi32>
%v887 = llvm.getelementptr %v878[512] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8
%v888 = llvm.load %v887 {alignment = 8 : i64} : !llvm.ptr<3> -> vector<2xi32>
%v889 = vector.extract %v888[0] : i32 from vector<2xi32>
%v890 = vector.extract %v888[1] : i32 from vector<2xi32>
%v891 = llvm.getelementptr %v878[768] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8
%v892 = llvm.load %v891 {alignment = 8 : i64} : !llvm.ptr<3> -> vector<2xi32>
%v893 = vector.extract %v892[0] : i32 from vector<2xi32>
%v894 = vector.extract %v892[1] : i32 from vector<2xi32>
%v895 = arith.addi %v16, %i853 : i32
%v896 = arith.extsi %v895 : i32 to i64
%v897 = arith.constant 8192 : i64
%v898 = arith.muli %v896, %v897 : i64
%v899 = llvm.getelementptr %v689[%v898] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v900 = arith.constant -65536 : i32
%v901 = arith.constant 16 : i32
%v902 = arith.shli %a853_3, %v901 : i32
%v903 = arith.bitcast %v902 : i32 to f32
%v904 = arith.andi %a853_3, %v900 : i32
%v905 = arith.bitcast %v904 : i32 to f32
%v906 = arith.constant -65536 : i32
%v907 = arith.constant 16 : i32
%v908 = arith.shli %a853_4, %v907 : i32
%v909 = arith.bitcast %v908 : i32 to f32
%v910 = arith.andi %a853_4, %v906 : i32
%v911 = arith.bitcast %v910 : i32 to f32
%v912 = arith.constant -65536 : i32
%v913 = arith.constant 16 : i32
%v914 = arith.shli %a853_5, %v913 : i32
%v915 = arith.bitcast %v914 : i32 to f32
%v916 = arith.andi %a853_5, %v912 : i32
%v917 = arith.bitcast %v916 : i32 to f32
%v918 = arith.constant -65536 : i32
%v919 = arith.constant 16 : i32
%v920 = arith.shli %a853_6, %v919 : i32
%v921 = arith.bitcast %v920 : i32 to f32
%v922 = arith.andi %a853_6, %v918 : i32
%v923 = arith.bitcast %v922 : i32 to f32
%v924 = arith.constant -65536 : i32
%v925 = arith.constant 16 : i32
%v926 = arith.shli %a853_7, %v925 : i32
%v927 = arith.bitcast %v926 : i32 to f32
%v928 = arith.andi %a853_7, %v924 : i32
%v929 = arith.bitcast %v928 : i32 to f32
%v930 = arith.constant -65536 : i32
%v931 = arith.constant 16 : i32
%v932 = arith.shli %a853_8, %v931 : i32
%v933 = arith.bitcast %v932 : i32 to f32
%v934 = arith.andi %a853_8, %v930 : i32
%v935 = arith.bitcast %v934 : i32 to f32
%v936 = arith.constant -65536 : i32
%v937 = arith.constant 16 : i32
%v938 = arith.shli %v881, %v937 : i32
%v939 = arith.bitcast %v938 : i32 to f32
%v940 = arith.andi %v881, %v936 : i32
%v941 = arith.bitcast %v940 : i32 to f32
%v942 = arith.constant -65536 : i32
%v943 = arith.constant 16 : i32
%v944 = arith.shli %v882, %v943 : i32
%v945 = arith.bitcast %v944 : i32 to f32
%v946 = arith.andi %v882, %v942 : i32
%v947 = arith.bitcast %v946 : i32 to f32
%v948 = arith.constant -65536 : i32
%v949 = arith.constant 16 : i32
%v950 = arith.shli %v885, %v949 : i32
%v951 = arith.bitcast %v950 : i32 to f32
%v952 = arith.andi %v885, %v948 : i32
%v953 = arith.bitcast %v952 : i32 to f32
%v954 = arith.constant -65536 : i32
%v955 = arith.constant 16 : i32
%v956 = arith.shli %v886, %v955 : i32
%v957 = arith.bitcast %v956 : i32 to f32
%v958 = arith.andi %v886, %v954 : i32
%v959 = arith.bitcast %v958 : i32 to f32
%v960 = arith.constant -65536 : i32
%v961 = arith.constant 16 : i32
%v962 = arith.shli %v889, %v961 : i32
%v963 = arith.bitcast %v962 : i32 to f32
%v964 = arith.andi %v889, %v960 : i32
%v965 = arith.bitcast %v964 : i32 to f32
%v966 = arith.constant -65536 : i32
%v967 = arith.constant 16 : i32
%v968 = arith.shli %v890, %v967 : i32
%v969 = arith.bitcast %v968 : i32 to f32
%v970 = arith.andi %v890, %v966 : i32
%v971 = arith.bitcast %v970 : i32 to f32
%v972 = arith.constant -65536 : i32
%v973 = arith.constant 16 : i32
%v974 = arith.shli %v893, %v973 : i32
%v975 = arith.bitcast %v974 : i32 to f32
%v976 = arith.andi %v893, %v972 : i32
%v977 = arith.bitcast %v976 : i32 to f32
%v978 = arith.constant -65536 : i32
%v979 = arith.constant 16 : i32
%v980 = arith.shli %v894, %v979 : i32
%v981 = arith.bitcast %v980 : i32 to f32
%v982 = arith.andi %v894, %v978 : i32
%v983 = arith.bitcast %v982 : i32 to f32
%v984 = arith.mulf %v755, %v903 fastmath<contract> : f32
%v985 = llvm.intr.fma(%v757, %v915, %v984) : (f32, f32, f32) -> f32
%v986 = llvm.intr.fma(%v761, %v927, %v985) : (f32, f32, f32) -> f32
%v987 = llvm.intr.fma(%v763, %v939, %v986) : (f32, f32, f32) -> f32
%v988 = arith.mulf %v767, %v905 fastmath<contract> : f32
%v989 = llvm.intr.fma(%v769, %v917, %v988) : (f32, f32, f32) -> f32
%v990 = llvm.intr.fma(%v773, %v929, %v989) : (f32, f32, f32) -> f32
%v991 = llvm.intr.fma(%v775, %v941, %v990) : (f32, f32, f32) -> f32
%v992 = arith.mulf %v779, %v909 fastmath<contract> : f32
%v993 = llvm.intr.fma(%v781, %v921, %v992) : (f32, f32, f32) -> f32
%v994 = llvm.intr.fma(%v785, %v933, %v993) : (f32, f32, f32) -> f32
%v995 = llvm.intr.fma(%v787, %v945, %v994) : (f32, f32, f32) -> f32
%v996 = arith.mulf %v791, %v911 fastmath<contract> : f32
%v997 = llvm.intr.fma(%v793, %v923, %v996) : (f32, f32, f32) -> f32
%v998 = llvm.intr.fma(%v797, %v935, %v997) : (f32, f32, f32) -> f32
%v999 = llvm.intr.fma(%v799, %v947, %v998) : (f32, f32, f32) -> f32
%v1000 = arith.constant -1.44269504088896339e+00 : f32
%v1001 = arith.constant 1.00000000000000000e+00 : f32
%v1002 = arith.mulf %v987, %v1000 fastmath<contract> : f32
%v1003 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1002 : (f32) -> f32
%v1004 = arith.addf %v1003, %v1001 fastmath<contract> : f32
%v1005 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1004 : (f32) -> f32
%v1006 = arith.mulf %v991, %v1000 fastmath<contract> : f32
%v1007 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1006 : (f32) -> f32
%v1008 = arith.addf %v1007, %v1001 fastmath<contract> : f32
%v1009 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1008 : (f32) -> f32
%v1010 = arith.mulf %v995, %v1000 fastmath<contract> : f32
%v1011 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1010 : (f32) -> f32
%v1012 = arith.addf %v1011, %v1001 fastmath<contract> : f32
%v1013 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1012 : (f32) -> f32
%v1014 = arith.mulf %v999, %v1000 fastmath<contract> : f32
%v1015 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1014 : (f32) -> f32
%v1016 = arith.addf %v1015, %v1001 fastmath<contract> : f32
%v1017 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1016 : (f32) -> f32
%v1018 = arith.mulf %v987, %v1005 fastmath<contract> : f32
%v1019 = arith.mulf %v991, %v1009 fastmath<contract> : f32
%v1020 = arith.mulf %v995, %v1013 fastmath<contract> : f32
%v1021 = arith.mulf %v999, %v1017 fastmath<contract> : f32
%v1022 = llvm.inline_asm asm_dialect = att "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f" %v1019, %v1018 : (f32, f32) -> i32
%v1023 = llvm.inline_asm asm_dialect = att "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f" %v1021, %v1020 : (f32, f32) -> i32
%v1024 = llvm.getelementptr %v899[0] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
%v1025 = llvm.mlir.undef : vector<2xi32>
%v1026 = arith.constant 0 : i32
%v1027 = llvm.insertelement %v1022, %v1025[%v1026 : i32] : vector<2xi32>
%v1028 = arith.constant 1 : i32
%v1029 = llvm.insertelement %v1023, %v1027[%v1028 : i32] : vector<2xi32>
llvm.store %v1029, %v1024 {alignment = 8 : i64} : vector<2xi32>, !llvm.ptr<1>
%v1030 = arith.mulf %v755, %v915 fastmath<contract> : f32
%v1031 = llvm.intr.fma(%v757, %v927, %v1030) : (f32, f32, f32) -> f32
%v1032 = llvm.intr.fma(%v761, %v939, %v1031) : (f32, f32, f32) -> f32
%v1033 = llvm.intr.fma(%v763, %v951, %v1032) : (f32, f32, f32) -> f32
%v1034 = arith.mulf %v767, %v917 fastmath<contract> : f32
%v1035 = llvm.intr.fma(%v769, %v929, %v1034) : (f32, f32, f32) -> f32
%v1036 = llvm.intr.fma(%v773, %v941, %v1035) : (f32, f32, f32) -> f32
%v1037 = llvm.intr.fma(%v775, %v953, %v1036) : (f32, f32, f32) -> f32
%v1038 = arith.mulf %v779, %v921 fastmath<contract> : f32
%v1039 = llvm.intr.fma(%v781, %v933, %v1038) : (f32, f32, f32) -> f32
%v1040 = llvm.intr.fma(%v785, %v945, %v1039) : (f32, f32, f32) -> f32
%v1041 = llvm.intr.fma(%v787, %v957, %v1040) : (f32, f32, f32) -> f32
%v1042 = arith.mulf %v791, %v923 fastmath<contract> : f32
%v1043 = llvm.intr.fma(%v793, %v935, %v1042) : (f32, f32, f32) -> f32
%v1044 = llvm.intr.fma(%v797, %v947, %v1043) : (f32, f32, f32) -> f32
%v1045 = llvm.intr.fma(%v799, %v959, %v1044) : (f32, f32, f32) -> f32
%v1046 = arith.constant -1.44269504088896339e+00 : f32
%v1047 = arith.constant 1.00000000000000000e+00 : f32
%v1048 = arith.mulf %v1033, %v1046 fastmath<contract> : f32
%v1049 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1048 : (f32) -> f32
%v1050 = arith.addf %v1049, %v1047 fastmath<contract> : f32
%v1051 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1050 : (f32) -> f32
%v1052 = arith.mulf %v1037, %v1046 fastmath<contract> : f32
%v1053 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1052 : (f32) -> f32
%v1054 = arith.addf %v1053, %v1047 fastmath<contract> : f32
%v1055 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1054 : (f32) -> f32
%v1056 = arith.mulf %v1041, %v1046 fastmath<contract> : f32
%v1057 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1056 : (f32) -> f32
%v1058 = arith.addf %v1057, %v1047 fastmath<contract> : f32
%v1059 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1058 : (f32) -> f32
%v1060 = arith.mulf %v1045, %v1046 fastmath<contract> : f32
%v1061 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1060 : (f32) -> f32
%v1062 = arith.addf %v1061, %v1047 fastmath<contract> : f32
%v1063 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1062 : (f32) -> f32
%v1064 = arith.mulf %v1033, %v1051 fastmath<contract> : f32
%v1065 = arith.mulf %v1037, %v1055 fastmath<contract> : f32
%v1066 = arith.mulf %v1041, %v1059 fastmath<contract> : f32
%v1067 = arith.mulf %v1045, %v1063 fastmath<contract> : f32
%v1068 = llvm.inline_asm asm_dialect = att "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f" %v1065, %v1064 : (f32, f32) -> i32
%v1069 = llvm.inline_asm asm_dialect = att "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f" %v1067, %v1066 : (f32, f32) -> i32
%v1070 = llvm.getelementptr %v899[8192] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
%v1071 = llvm.mlir.undef : vector<2xi32>
%v1072 = arith.constant 0 : i32
%v1073 = llvm.insertelement %v1068, %v1071[%v1072 : i32] : vector<2xi32>
%v1074 = arith.constant 1 : i32
%v1075 = llvm.insertelement %v1069, %v1073[%v1074 : i32] : vector<2xi32>
llvm.store %v1075, %v1070 {alignment = 8 : i64} : vector<2xi32>, !llvm.ptr<1>
%v1076 = arith.mulf %v755, %v927 fastmath<contract> : f32
%v1077 = llvm.intr.fma(%v757, %v939, %v1076) : (f32, f32, f32) -> f32
%v1078 = llvm.intr.fma(%v761, %v951, %v1077) : (f32, f32, f32) -> f32
%v1079 = llvm.intr.fma(%v763, %v963, %v1078) : (f32, f32, f32) -> f32
%v1080 = arith.mulf %v767, %v929 fastmath<contract> : f32
%v1081 = llvm.intr.fma(%v769, %v941, %v1080) : (f32, f32, f32) -> f32
%v1082 = llvm.intr.fma(%v773, %v953, %v1081) : (f32, f32, f32) -> f32
%v1083 = llvm.intr.fma(%v775, %v965, %v1082) : (f32, f32, f32) -> f32
%v1084 = arith.mulf %v779, %v933 fastmath<contract> : f32
%v1085 = llvm.intr.fma(%v781, %v945, %v1084) : (f32, f32, f32) -> f32
%v1086 = llvm.intr.fma(%v785, %v957, %v1085) : (f32, f32, f32) -> f32
%v1087 = llvm.intr.fma(%v787, %v969, %v1086) : (f32, f32, f32) -> f32
%v1088 = arith.mulf %v791, %v935 fastmath<contract> : f32
%v1089 = llvm.intr.fma(%v793, %v947, %v1088) : (f32, f32, f32) -> f32
%v1090 = llvm.intr.fma(%v797, %v959, %v1089) : (f32, f32, f32) -> f32
%v1091 = llvm.intr.fma(%v799, %v971, %v1090) : (f32, f32, f32) -> f32
%v1092 = arith.constant -1.44269504088896339e+00 : f32
%v1093 = arith.constant 1.00000000000000000e+00 : f32
%v1094 = arith.mulf %v1079, %v1092 fastmath<contract> : f32
%v1095 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1094 : (f32) -> f32
%v1096 = arith.addf %v1095, %v1093 fastmath<contract> : f32
%v1097 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1096 : (f32) -> f32
%v1098 = arith.mulf %v1083, %v1092 fastmath<contract> : f32
%v1099 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1098 : (f32) -> f32
%v1100 = arith.addf %v1099, %v1093 fastmath<contract> : f32
%v1101 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1100 : (f32) -> f32
%v1102 = arith.mulf %v1087, %v1092 fastmath<contract> : f32
%v1103 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1102 : (f32) -> f32
%v1104 = arith.addf %v1103, %v1093 fastmath<contract> : f32
%v1105 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1104 : (f32) -> f32
%v1106 = arith.mulf %v1091, %v1092 fastmath<contract> : f32
%v1107 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1106 : (f32) -> f32
%v1108 = arith.addf %v1107, %v1093 fastmath<contract> : f32
%v1109 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1108 : (f32) -> f32
%v1110 = arith.mulf %v1079, %v1097 fastmath<contract> : f32
%v1111 = arith.mulf %v1083, %v1101 fastmath<contract> : f32
%v1112 = arith.mulf %v1087, %v1105 fastmath<contract> : f32
%v1113 = arith.mulf %v1091, %v1109 fastmath<contract> : f32
%v1114 = llvm.inline_asm asm_dialect = att "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f" %v1111, %v1110 : (f32, f32) -> i32
%v1115 = llvm.inline_asm asm_dialect = att "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f" %v1113, %v1112 : (f32, f32) -> i32
%v1116 = llvm.getelementptr %v899[16384] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
%v1117 = llvm.mlir.undef : vector<2xi32>
%v1118 = arith.constant 0 : i32
%v1119 = llvm.insertelement %v1114, %v1117[%v1118 : i32] : vector<2xi32>
%v1120 = arith.constant 1 : i32
%v1121 = llvm.insertelement %v1115, %v1119[%v1120 : i32] : vector<2xi32>
llvm.store %v1121, %v1116 {alignment = 8 : i64} : vector<2xi32>, !llvm.ptr<1>
%v1122 = arith.mulf %v755, %v939 fastmath<contract> : f32
%v1123 = llvm.intr.fma(%v757, %v951, %v1122) : (f32, f32, f32) -> f32
%v1124 = llvm.intr.fma(%v761, %v963, %v1123) : (f32, f32, f32) -> f32
%v1125 = llvm.intr.fma(%v763, %v975, %v1124) : (f32, f32, f32) -> f32
%v1126 = arith.mulf %v767, %v941 fastmath<contract> : f32
%v1127 = llvm.intr.fma(%v769, %v953, %v1126) : (f32, f32, f32) -> f32
%v1128 = llvm.intr.fma(%v773, %v965, %v1127) : (f32, f32, f32) -> f32
%v1129 = llvm.intr.fma(%v775, %v977, %v1128) : (f32, f32, f32) -> f32
%v1130 = arith.mulf %v779, %v945 fastmath<contract> : f32
%v1131 = llvm.intr.fma(%v781, %v957, %v1130) : (f32, f32, f32) -> f32
%v1132 = llvm.intr.fma(%v785, %v969, %v1131) : (f32, f32, f32) -> f32
%v1133 = llvm.intr.fma(%v787, %v981, %v1132) : (f32, f32, f32) -> f32
%v1134 = arith.mulf %v791, %v947 fastmath<contract> : f32
%v1135 = llvm.intr.fma(%v793, %v959, %v1134) : (f32, f32, f32) -> f32
%v1136 = llvm.intr.fma(%v797, %v971, %v1135) : (f32, f32, f32) -> f32
%v1137 = llvm.intr.fma(%v799, %v983, %v1136) : (f32, f32, f32) -> f32
%v1138 = arith.constant -1.44269504088896339e+00 : f32
%v1139 = arith.constant 1.00000000000000000e+00 : f32
%v1140 = arith.mulf %v1125, %v1138 fastmath<contract> : f32
%v1141 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1140 : (f32) -> f32
%v1142 = arith.addf %v1141, %v1139 fastmath<contract> : f32
%v1143 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1142 : (f32) -> f32
%v1144 = arith.mulf %v1129, %v1138 fastmath<contract> : f32
%v1145 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1144 : (f32) -> f32
%v1146 = arith.addf %v1145, %v1139 fastmath<contract> : f32
%v1147 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1146 : (f32) -> f32
%v1148 = arith.mulf %v1133, %v1138 fastmath<contract> : f32
%v1149 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1148 : (f32) -> f32
%v1150 = arith.addf %v1149, %v1139 fastmath<contract> : f32
%v1151 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1150 : (f32) -> f32
%v1152 = arith.mulf %v1137, %v1138 fastmath<contract> : f32
%v1153 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1152 : (f32) -> f32
%v1154 = arith.addf %v1153, %v1139 fastmath<contract> : f32
%v1155 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1154 : (f32) -> f32
%v1156 = arith.mulf %v1125, %v1143 fastmath<contract> : f32
%v1157 = arith.mulf %v1129, %v1147 fastmath<contract> : f32
%v1158 = arith.mulf %v1133, %v1151 fastmath<contract> : f32
%v1159 = arith.mulf %v1137, %v1155 fastmath<contract> : f32
%v1160 = llvm.inline_asm asm_dialect = att "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f" %v1157, %v1156 : (f32, f32) -> i32
%v1161 = llvm.inline_asm asm_dialect = att "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f" %v1159, %v1158 : (f32, f32) -> i32
%v1162 = llvm.getelementptr %v899[24576] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
%v1163 = llvm.mlir.undef : vector<2xi32>
%v1164 = arith.constant 0 : i32
%v1165 = llvm.insertelement %v1160, %v1163[%v1164 : i32] : vector<2xi32>
%v1166 = arith.constant 1 : i32
%v1167 = llvm.insertelement %v1161, %v1165[%v1166 : i32] : vector<2xi32>
llvm.store %v1167, %v1162 {alignment = 8 : i64} : vector<2xi32>, !llvm.ptr<1>
%v1168 = arith.constant 1024 : i32
%v1169 = arith.addi %a853_0, %v1168 : i32
%v1170 = arith.constant 3072 : i32
%v1171 = arith.cmpi eq, %v1169, %v1170 : i32
%v1172 = arith.constant 0 : i32
%v1173 = arith.select %v1171, %v1172, %v1169 : i32
%v1174 = arith.constant 0 : i32
%v1175 = arith.cmpi eq, %v1173, %v1174 : i32
%v1176 = arith.constant 1 : i32
%v1177 = arith.xori %a853_2, %v1176 : i32
%v1178 = arith.select %v1175, %v1177, %a853_2 : i32
%v1179 = arith.constant 1024 : i32
%v1180 = arith.addi %a853_1, %v1179 : i32
%v1181 = arith.constant 3072 : i32
%v1182 = arith.cmpi eq, %v1180, %v1181 : i32
%v1183 = arith.constant 0 : i32
%v1184 = arith.select %v1182, %v1183, %v1180 : i32
scf.yield %v1173, %v1184, %v1178, %v885, %v886, %v889, %v890, %v893, %v894 : i32, i32, i32, i32, i32, i32, i32, i32, i32
}
}
} else {
%v1185 = arith.constant 3 : i32
%v1186 = arith.andi %v1, %v1185 : i32
%v1187 = arith.constant 5 : i32
%v1188 = arith.shli %v1186, %v1187 : i32
%v1189 = arith.extsi %v1188 : i32 to i64
%v1190 = llvm.getelementptr %al[%v1189] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v1191 = llvm.getelementptr %v1190[0] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
%v1192 = llvm.load %v1191 {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
%v1193 = vector.extract %v1192[0] : f32 from vector<4xf32>
%v1194 = vector.extract %v1192[1] : f32 from vector<4xf32>
%v1195 = vector.extract %v1192[2] : f32 from vector<4xf32>
%v1196 = vector.extract %v1192[3] : f32 from vector<4xf32>
%v1197 = arith.constant 5 : i32
%v1198 = arith.shli %v1186, %v1197 : i32
%v1199 = arith.extsi %v1198 : i32 to i64
%v1200 = llvm.getelementptr %al[%v1199] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v1201 = llvm.getelementptr %v1200[16] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
%v1202 = llvm.load %v1201 {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
%v1203 = vector.extract %v1202[0] : f32 from vector<4xf32>
%v1204 = vector.extract %v1202[1] : f32 from vector<4xf32>
%v1205 = vector.extract %v1202[2] : f32 from vector<4xf32>
%v1206 = vector.extract %v1202[3] : f32 from vector<4xf32>
%v1207 = arith.constant 4 : i32
%v1208 = arith.shli %v1186, %v1207 : i32
%v1209 = arith.extsi %v1208 : i32 to i64
%v1210 = llvm.getelementptr %dtb[%v1209] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v1211 = llvm.load %v1210 {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>
%v1212 = vector.extract %v1211[0] : i32 from vector<4xi32>
%v1213 = vector.extract %v1211[1] : i32 from vector<4xi32>
%v1214 = vector.extract %v1211[2] : i32 from vector<4xi32>
%v1215 = vector.extract %v1211[3] : i32 from vector<4xi32>
%v1216 = arith.constant -65536 : i32
%v1217 = arith.constant 16 : i32
%v1218 = arith.shli %v1212, %v1217 : i32
%v1219 = arith.bitcast %v1218 : i32 to f32
%v1220 = arith.andi %v1212, %v1216 : i32
%v1221 = arith.bitcast %v1220 : i32 to f32
%v1222 = arith.constant -65536 : i32
%v1223 = arith.constant 16 : i32
%v1224 = arith.shli %v1213, %v1223 : i32
%v1225 = arith.bitcast %v1224 : i32 to f32
%v1226 = arith.andi %v1213, %v1222 : i32
%v1227 = arith.bitcast %v1226 : i32 to f32
%v1228 = arith.constant -65536 : i32
%v1229 = arith.constant 16 : i32
%v1230 = arith.shli %v1214, %v1229 : i32
%v1231 = arith.bitcast %v1230 : i32 to f32
%v1232 = arith.andi %v1214, %v1228 : i32
%v1233 = arith.bitcast %v1232 : i32 to f32
%v1234 = arith.constant -65536 : i32
%v1235 = arith.constant 16 : i32
%v1236 = arith.shli %v1215, %v1235 : i32
%v1237 = arith.bitcast %v1236 : i32 to f32
%v1238 = arith.andi %v1215, %v1234 : i32
%v1239 = arith.bitcast %v1238 : i32 to f32
%v1240 = arith.constant 1.44269504088896339e+00 : f32
%v1241 = arith.constant 0.00000000000000000e+00 : f32
%v1242 = arith.mulf %v1193, %v1240 fastmath<contract> : f32
%v1243 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1242 : (f32) -> f32
%v1244 = arith.subf %v1241, %v1243 fastmath<contract> : f32
%v1245 = arith.mulf %v1194, %v1240 fastmath<contract> : f32
%v1246 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1245 : (f32) -> f32
%v1247 = arith.subf %v1241, %v1246 fastmath<contract> : f32
%v1248 = arith.mulf %v1195, %v1240 fastmath<contract> : f32
%v1249 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1248 : (f32) -> f32
%v1250 = arith.subf %v1241, %v1249 fastmath<contract> : f32
%v1251 = arith.mulf %v1196, %v1240 fastmath<contract> : f32
%v1252 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1251 : (f32) -> f32
%v1253 = arith.subf %v1241, %v1252 fastmath<contract> : f32
%v1254 = arith.mulf %v1203, %v1240 fastmath<contract> : f32
%v1255 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1254 : (f32) -> f32
%v1256 = arith.subf %v1241, %v1255 fastmath<contract> : f32
%v1257 = arith.mulf %v1204, %v1240 fastmath<contract> : f32
%v1258 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1257 : (f32) -> f32
%v1259 = arith.subf %v1241, %v1258 fastmath<contract> : f32
%v1260 = arith.mulf %v1205, %v1240 fastmath<contract> : f32
%v1261 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1260 : (f32) -> f32
%v1262 = arith.subf %v1241, %v1261 fastmath<contract> : f32
%v1263 = arith.mulf %v1206, %v1240 fastmath<contract> : f32
%v1264 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1263 : (f32) -> f32
%v1265 = arith.subf %v1241, %v1264 fastmath<contract> : f32
%v1267 = arith.constant 32 : i32
%v1268 = arith.constant 32 : i32
scf.for %i1266 = %v1 to %v1267 step %v1268 : i32 {
%v1269 = arith.constant 2 : i32
%v1270 = arith.shrui %i1266, %v1269 : i32
%v1271 = arith.addi %v13, %v1270 : i32
%v1272 = arith.extsi %v1271 : i32 to i64
%v1273 = arith.constant 24704 : i64
%v1274 = arith.muli %v1272, %v1273 : i64
%v1275 = llvm.getelementptr %x[%v1274] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v1276 = arith.constant 4 : i32
%v1277 = arith.shli %v1186, %v1276 : i32
%v1278 = arith.extsi %v1277 : i32 to i64
%v1279 = llvm.getelementptr %v1275[%v1278] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v1280 = llvm.getelementptr %v1279[24576] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
%v1281 = llvm.load %v1280 {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>
%v1282 = vector.extract %v1281[0] : i32 from vector<4xi32>
%v1283 = vector.extract %v1281[1] : i32 from vector<4xi32>
%v1284 = vector.extract %v1281[2] : i32 from vector<4xi32>
%v1285 = vector.extract %v1281[3] : i32 from vector<4xi32>
%v1286 = arith.constant -65536 : i32
%v1287 = arith.constant 16 : i32
%v1288 = arith.shli %v1282, %v1287 : i32
%v1289 = arith.bitcast %v1288 : i32 to f32
%v1290 = arith.andi %v1282, %v1286 : i32
%v1291 = arith.bitcast %v1290 : i32 to f32
%v1292 = arith.constant -65536 : i32
%v1293 = arith.constant 16 : i32
%v1294 = arith.shli %v1283, %v1293 : i32
%v1295 = arith.bitcast %v1294 : i32 to f32
%v1296 = arith.andi %v1283, %v1292 : i32
%v1297 = arith.bitcast %v1296 : i32 to f32
%v1298 = arith.constant -65536 : i32
%v1299 = arith.constant 16 : i32
%v1300 = arith.shli %v1284, %v1299 : i32
%v1301 = arith.bitcast %v1300 : i32 to f32
%v1302 = arith.andi %v1284, %v1298 : i32
%v1303 = arith.bitcast %v1302 : i32 to f32
%v1304 = arith.constant -65536 : i32
%v1305 = arith.constant 16 : i32
%v1306 = arith.shli %v1285, %v1305 : i32
%v1307 = arith.bitcast %v1306 : i32 to f32
%v1308 = arith.andi %v1285, %v1304 : i32
%v1309 = arith.bitcast %v1308 : i32 to f32
%v1310 = llvm.getelementptr %v1279[24640] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
%v1311 = llvm.load %v1310 {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>
%v1312 = vector.extract %v1311[0] : i32 from vector<4xi32>
%v1313 = vector.extract %v1311[1] : i32 from vector<4xi32>
%v1314 = vector.extract %v1311[2] : i32 from vector<4xi32>
%v1315 = vector.extract %v1311[3] : i32 from vector<4xi32>
%v1316 = arith.constant -65536 : i32
%v1317 = arith.constant 16 : i32
%v1318 = arith.shli %v1312, %v1317 : i32
%v1319 = arith.bitcast %v1318 : i32 to f32
%v1320 = arith.andi %v1312, %v1316 : i32
%v1321 = arith.bitcast %v1320 : i32 to f32
%v1322 = arith.constant -65536 : i32
%v1323 = arith.constant 16 : i32
%v1324 = arith.shli %v1313, %v1323 : i32
%v1325 = arith.bitcast %v1324 : i32 to f32
%v1326 = arith.andi %v1313, %v1322 : i32
%v1327 = arith.bitcast %v1326 : i32 to f32
%v1328 = arith.constant -65536 : i32
%v1329 = arith.constant 16 : i32
%v1330 = arith.shli %v1314, %v1329 : i32
%v1331 = arith.bitcast %v1330 : i32 to f32
%v1332 = arith.andi %v1314, %v1328 : i32
%v1333 = arith.bitcast %v1332 : i32 to f32
%v1334 = arith.constant -65536 : i32
%v1335 = arith.constant 16 : i32
%v1336 = arith.shli %v1315, %v1335 : i32
%v1337 = arith.bitcast %v1336 : i32 to f32
%v1338 = arith.andi %v1315, %v1334 : i32
%v1339 = arith.bitcast %v1338 : i32 to f32
%v1340 = arith.addf %v1319, %v1219 fastmath<contract> : f32
%v1341 = arith.constant 0.00000000000000000e+00 : f32
%v1342 = arith.subf %v1341, %v1340 fastmath<contract> : f32
%v1343 = llvm.inline_asm asm_dialect = att "min.f32 $0, $1, $2;", "=f,f,f" %v1340, %v1342 : (f32, f32) -> f32
%v1344 = arith.constant 1.44269504088896339e+00 : f32
%v1345 = arith.mulf %v1343, %v1344 fastmath<contract> : f32
%v1346 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1345 : (f32) -> f32
%v1347 = arith.constant 2.00000000000000000e+00 : f32
%v1348 = arith.addf %v1346, %v1347 fastmath<contract> : f32
%v1349 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1348 : (f32) -> f32
%v1350 = arith.mulf %v1346, %v1349 fastmath<contract> : f32
%v1351 = arith.mulf %v1350, %v1350 fastmath<contract> : f32
%v1352 = arith.constant 1.53846153846153855e-01 : f32
%v1353 = arith.constant 1.81818181818181823e-01 : f32
%v1354 = llvm.intr.fma(%v1352, %v1351, %v1353) : (f32, f32, f32) -> f32
%v1355 = arith.constant 2.22222222222222210e-01 : f32
%v1356 = llvm.intr.fma(%v1354, %v1351, %v1355) : (f32, f32, f32) -> f32
%v1357 = arith.constant 2.85714285714285698e-01 : f32
%v1358 = llvm.intr.fma(%v1356, %v1351, %v1357) : (f32, f32, f32) -> f32
%v1359 = arith.constant 4.00000000000000022e-01 : f32
%v1360 = llvm.intr.fma(%v1358, %v1351, %v1359) : (f32, f32, f32) -> f32
%v1361 = arith.constant 6.66666666666666630e-01 : f32
%v1362 = llvm.intr.fma(%v1360, %v1351, %v1361) : (f32, f32, f32) -> f32
%v1363 = arith.constant 2.00000000000000000e+00 : f32
%v1364 = llvm.intr.fma(%v1362, %v1351, %v1363) : (f32, f32, f32) -> f32
%v1365 = arith.constant 0.00000000000000000e+00 : f32
%v1366 = llvm.inline_asm asm_dialect = att "max.f32 $0, $1, $2;", "=f,f,f" %v1340, %v1365 : (f32, f32) -> f32
%v1367 = llvm.intr.fma(%v1364, %v1350, %v1366) : (f32, f32, f32) -> f32
%v1368 = arith.mulf %v1244, %v1367 fastmath<contract> : f32
%v1369 = arith.addf %v1321, %v1221 fastmath<contract> : f32
%v1370 = arith.constant 0.00000000000000000e+00 : f32
%v1371 = arith.subf %v1370, %v1369 fastmath<contract> : f32
%v1372 = llvm.inline_asm asm_dialect = att "min.f32 $0, $1, $2;", "=f,f,f" %v1369, %v1371 : (f32, f32) -> f32
%v1373 = arith.constant 1.44269504088896339e+00 : f32
%v1374 = arith.mulf %v1372, %v1373 fastmath<contract> : f32
%v1375 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1374 : (f32) -> f32
%v1376 = arith.constant 2.00000000000000000e+00 : f32
%v1377 = arith.addf %v1375, %v1376 fastmath<contract> : f32
%v1378 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1377 : (f32) -> f32
%v1379 = arith.mulf %v1375, %v1378 fastmath<contract> : f32
%v1380 = arith.mulf %v1379, %v1379 fastmath<contract> : f32
%v1381 = arith.constant 1.53846153846153855e-01 : f32
%v1382 = arith.constant 1.81818181818181823e-01 : f32
%v1383 = llvm.intr.fma(%v1381, %v1380, %v1382) : (f32, f32, f32) -> f32
%v1384 = arith.constant 2.22222222222222210e-01 : f32
%v1385 = llvm.intr.fma(%v1383, %v1380, %v1384) : (f32, f32, f32) -> f32
%v1386 = arith.constant 2.85714285714285698e-01 : f32
%v1387 = llvm.intr.fma(%v1385, %v1380, %v1386) : (f32, f32, f32) -> f32
%v1388 = arith.constant 4.00000000000000022e-01 : f32
%v1389 = llvm.intr.fma(%v1387, %v1380, %v1388) : (f32, f32, f32) -> f32
%v1390 = arith.constant 6.66666666666666630e-01 : f32
%v1391 = llvm.intr.fma(%v1389, %v1380, %v1390) : (f32, f32, f32) -> f32
%v1392 = arith.constant 2.00000000000000000e+00 : f32
%v1393 = llvm.intr.fma(%v1391, %v1380, %v1392) : (f32, f32, f32) -> f32
%v1394 = arith.constant 0.00000000000000000e+00 : f32
%v1395 = llvm.inline_asm asm_dialect = att "max.f32 $0, $1, $2;", "=f,f,f" %v1369, %v1394 : (f32, f32) -> f32
%v1396 = llvm.intr.fma(%v1393, %v1379, %v1395) : (f32, f32, f32) -> f32
%v1397 = arith.mulf %v1247, %v1396 fastmath<contract> : f32
%v1398 = arith.addf %v1325, %v1225 fastmath<contract> : f32
%v1399 = arith.constant 0.00000000000000000e+00 : f32
%v1400 = arith.subf %v1399, %v1398 fastmath<contract> : f32
%v1401 = llvm.inline_asm asm_dialect = att "min.f32 $0, $1, $2;", "=f,f,f" %v1398, %v1400 : (f32, f32) -> f32
%v1402 = arith.constant 1.44269504088896339e+00 : f32
%v1403 = arith.mulf %v1401, %v1402 fastmath<contract> : f32
%v1404 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1403 : (f32) -> f32
%v1405 = arith.constant 2.00000000000000000e+00 : f32
%v1406 = arith.addf %v1404, %v1405 fastmath<contract> : f32
%v1407 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1406 : (f32) -> f32
%v1408 = arith.mulf %v1404, %v1407 fastmath<contract> : f32
%v1409 = arith.mulf %v1408, %v1408 fastmath<contract> : f32
%v1410 = arith.constant 1.53846153846153855e-01 : f32
%v1411 = arith.constant 1.81818181818181823e-01 : f32
%v1412 = llvm.intr.fma(%v1410, %v1409, %v1411) : (f32, f32, f32) -> f32
%v1413 = arith.constant 2.22222222222222210e-01 : f32
%v1414 = llvm.intr.fma(%v1412, %v1409, %v1413) : (f32, f32, f32) -> f32
%v1415 = arith.constant 2.85714285714285698e-01 : f32
%v1416 = llvm.intr.fma(%v1414, %v1409, %v1415) : (f32, f32, f32) -> f32
%v1417 = arith.constant 4.00000000000000022e-01 : f32
%v1418 = llvm.intr.fma(%v1416, %v1409, %v1417) : (f32, f32, f32) -> f32
%v1419 = arith.constant 6.66666666666666630e-01 : f32
%v1420 = llvm.intr.fma(%v1418, %v1409, %v1419) : (f32, f32, f32) -> f32
%v1421 = arith.constant 2.00000000000000000e+00 : f32
%v1422 = llvm.intr.fma(%v1420, %v1409, %v1421) : (f32, f32, f32) -> f32
%v1423 = arith.constant 0.00000000000000000e+00 : f32
%v1424 = llvm.inline_asm asm_dialect = att "max.f32 $0, $1, $2;", "=f,f,f" %v1398, %v1423 : (f32, f32) -> f32
%v1425 = llvm.intr.fma(%v1422, %v1408, %v1424) : (f32, f32, f32) -> f32
%v1426 = arith.mulf %v1250, %v1425 fastmath<contract> : f32
%v1427 = arith.addf %v1327, %v1227 fastmath<contract> : f32
%v1428 = arith.constant 0.00000000000000000e+00 : f32
%v1429 = arith.subf %v1428, %v1427 fastmath<contract> : f32
%v1430 = llvm.inline_asm asm_dialect = att "min.f32 $0, $1, $2;", "=f,f,f" %v1427, %v1429 : (f32, f32) -> f32
%v1431 = arith.constant 1.44269504088896339e+00 : f32
%v1432 = arith.mulf %v1430, %v1431 fastmath<contract> : f32
%v1433 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1432 : (f32) -> f32
%v1434 = arith.constant 2.00000000000000000e+00 : f32
%v1435 = arith.addf %v1433, %v1434 fastmath<contract> : f32
%v1436 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1435 : (f32) -> f32
%v1437 = arith.mulf %v1433, %v1436 fastmath<contract> : f32
%v1438 = arith.mulf %v1437, %v1437 fastmath<contract> : f32
%v1439 = arith.constant 1.53846153846153855e-01 : f32
%v1440 = arith.constant 1.81818181818181823e-01 : f32
%v1441 = llvm.intr.fma(%v1439, %v1438, %v1440) : (f32, f32, f32) -> f32
%v1442 = arith.constant 2.22222222222222210e-01 : f32
%v1443 = llvm.intr.fma(%v1441, %v1438, %v1442) : (f32, f32, f32) -> f32
%v1444 = arith.constant 2.85714285714285698e-01 : f32
%v1445 = llvm.intr.fma(%v1443, %v1438, %v1444) : (f32, f32, f32) -> f32
%v1446 = arith.constant 4.00000000000000022e-01 : f32
%v1447 = llvm.intr.fma(%v1445, %v1438, %v1446) : (f32, f32, f32) -> f32
%v1448 = arith.constant 6.66666666666666630e-01 : f32
%v1449 = llvm.intr.fma(%v1447, %v1438, %v1448) : (f32, f32, f32) -> f32
%v1450 = arith.constant 2.00000000000000000e+00 : f32
%v1451 = llvm.intr.fma(%v1449, %v1438, %v1450) : (f32, f32, f32) -> f32
%v1452 = arith.constant 0.00000000000000000e+00 : f32
%v1453 = llvm.inline_asm asm_dialect = att "max.f32 $0, $1, $2;", "=f,f,f" %v1427, %v1452 : (f32, f32) -> f32
%v1454 = llvm.intr.fma(%v1451, %v1437, %v1453) : (f32, f32, f32) -> f32
%v1455 = arith.mulf %v1253, %v1454 fastmath<contract> : f32
%v1456 = arith.addf %v1331, %v1231 fastmath<contract> : f32
%v1457 = arith.constant 0.00000000000000000e+00 : f32
%v1458 = arith.subf %v1457, %v1456 fastmath<contract> : f32
%v1459 = llvm.inline_asm asm_dialect = att "min.f32 $0, $1, $2;", "=f,f,f" %v1456, %v1458 : (f32, f32) -> f32
%v1460 = arith.constant 1.44269504088896339e+00 : f32
%v1461 = arith.mulf %v1459, %v1460 fastmath<contract> : f32
%v1462 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1461 : (f32) -> f32
%v1463 = arith.constant 2.00000000000000000e+00 : f32
%v1464 = arith.addf %v1462, %v1463 fastmath<contract> : f32
%v1465 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1464 : (f32) -> f32
%v1466 = arith.mulf %v1462, %v1465 fastmath<contract> : f32
%v1467 = arith.mulf %v1466, %v1466 fastmath<contract> : f32
%v1468 = arith.constant 1.53846153846153855e-01 : f32
%v1469 = arith.constant 1.81818181818181823e-01 : f32
%v1470 = llvm.intr.fma(%v1468, %v1467, %v1469) : (f32, f32, f32) -> f32
%v1471 = arith.constant 2.22222222222222210e-01 : f32
%v1472 = llvm.intr.fma(%v1470, %v1467, %v1471) : (f32, f32, f32) -> f32
%v1473 = arith.constant 2.85714285714285698e-01 : f32
%v1474 = llvm.intr.fma(%v1472, %v1467, %v1473) : (f32, f32, f32) -> f32
%v1475 = arith.constant 4.00000000000000022e-01 : f32
%v1476 = llvm.intr.fma(%v1474, %v1467, %v1475) : (f32, f32, f32) -> f32
%v1477 = arith.constant 6.66666666666666630e-01 : f32
%v1478 = llvm.intr.fma(%v1476, %v1467, %v1477) : (f32, f32, f32) -> f32
%v1479 = arith.constant 2.00000000000000000e+00 : f32
%v1480 = llvm.intr.fma(%v1478, %v1467, %v1479) : (f32, f32, f32) -> f32
%v1481 = arith.constant 0.00000000000000000e+00 : f32
%v1482 = llvm.inline_asm asm_dialect = att "max.f32 $0, $1, $2;", "=f,f,f" %v1456, %v1481 : (f32, f32) -> f32
%v1483 = llvm.intr.fma(%v1480, %v1466, %v1482) : (f32, f32, f32) -> f32
%v1484 = arith.mulf %v1256, %v1483 fastmath<contract> : f32
%v1485 = arith.addf %v1333, %v1233 fastmath<contract> : f32
%v1486 = arith.constant 0.00000000000000000e+00 : f32
%v1487 = arith.subf %v1486, %v1485 fastmath<contract> : f32
%v1488 = llvm.inline_asm asm_dialect = att "min.f32 $0, $1, $2;", "=f,f,f" %v1485, %v1487 : (f32, f32) -> f32
%v1489 = arith.constant 1.44269504088896339e+00 : f32
%v1490 = arith.mulf %v1488, %v1489 fastmath<contract> : f32
%v1491 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1490 : (f32) -> f32
%v1492 = arith.constant 2.00000000000000000e+00 : f32
%v1493 = arith.addf %v1491, %v1492 fastmath<contract> : f32
%v1494 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1493 : (f32) -> f32
%v1495 = arith.mulf %v1491, %v1494 fastmath<contract> : f32
%v1496 = arith.mulf %v1495, %v1495 fastmath<contract> : f32
%v1497 = arith.constant 1.53846153846153855e-01 : f32
%v1498 = arith.constant 1.81818181818181823e-01 : f32
%v1499 = llvm.intr.fma(%v1497, %v1496, %v1498) : (f32, f32, f32) -> f32
%v1500 = arith.constant 2.22222222222222210e-01 : f32
%v1501 = llvm.intr.fma(%v1499, %v1496, %v1500) : (f32, f32, f32) -> f32
%v1502 = arith.constant 2.85714285714285698e-01 : f32
%v1503 = llvm.intr.fma(%v1501, %v1496, %v1502) : (f32, f32, f32) -> f32
%v1504 = arith.constant 4.00000000000000022e-01 : f32
%v1505 = llvm.intr.fma(%v1503, %v1496, %v1504) : (f32, f32, f32) -> f32
%v1506 = arith.constant 6.66666666666666630e-01 : f32
%v1507 = llvm.intr.fma(%v1505, %v1496, %v1506) : (f32, f32, f32) -> f32
%v1508 = arith.constant 2.00000000000000000e+00 : f32
%v1509 = llvm.intr.fma(%v1507, %v1496, %v1508) : (f32, f32, f32) -> f32
%v1510 = arith.constant 0.00000000000000000e+00 : f32
%v1511 = llvm.inline_asm asm_dialect = att "max.f32 $0, $1, $2;", "=f,f,f" %v1485, %v1510 : (f32, f32) -> f32
%v1512 = llvm.intr.fma(%v1509, %v1495, %v1511) : (f32, f32, f32) -> f32
%v1513 = arith.mulf %v1259, %v1512 fastmath<contract> : f32
%v1514 = arith.addf %v1337, %v1237 fastmath<contract> : f32
%v1515 = arith.constant 0.00000000000000000e+00 : f32
%v1516 = arith.subf %v1515, %v1514 fastmath<contract> : f32
%v1517 = llvm.inline_asm asm_dialect = att "min.f32 $0, $1, $2;", "=f,f,f" %v1514, %v1516 : (f32, f32) -> f32
%v1518 = arith.constant 1.44269504088896339e+00 : f32
%v1519 = arith.mulf %v1517, %v1518 fastmath<contract> : f32
%v1520 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1519 : (f32) -> f32
%v1521 = arith.constant 2.00000000000000000e+00 : f32
%v1522 = arith.addf %v1520, %v1521 fastmath<contract> : f32
%v1523 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1522 : (f32) -> f32
%v1524 = arith.mulf %v1520, %v1523 fastmath<contract> : f32
%v1525 = arith.mulf %v1524, %v1524 fastmath<contract> : f32
%v1526 = arith.constant 1.53846153846153855e-01 : f32
%v1527 = arith.constant 1.81818181818181823e-01 : f32
%v1528 = llvm.intr.fma(%v1526, %v1525, %v1527) : (f32, f32, f32) -> f32
%v1529 = arith.constant 2.22222222222222210e-01 : f32
%v1530 = llvm.intr.fma(%v1528, %v1525, %v1529) : (f32, f32, f32) -> f32
%v1531 = arith.constant 2.85714285714285698e-01 : f32
%v1532 = llvm.intr.fma(%v1530, %v1525, %v1531) : (f32, f32, f32) -> f32
%v1533 = arith.constant 4.00000000000000022e-01 : f32
%v1534 = llvm.intr.fma(%v1532, %v1525, %v1533) : (f32, f32, f32) -> f32
%v1535 = arith.constant 6.66666666666666630e-01 : f32
%v1536 = llvm.intr.fma(%v1534, %v1525, %v1535) : (f32, f32, f32) -> f32
%v1537 = arith.constant 2.00000000000000000e+00 : f32
%v1538 = llvm.intr.fma(%v1536, %v1525, %v1537) : (f32, f32, f32) -> f32
%v1539 = arith.constant 0.00000000000000000e+00 : f32
%v1540 = llvm.inline_asm asm_dialect = att "max.f32 $0, $1, $2;", "=f,f,f" %v1514, %v1539 : (f32, f32) -> f32
%v1541 = llvm.intr.fma(%v1538, %v1524, %v1540) : (f32, f32, f32) -> f32
%v1542 = arith.mulf %v1262, %v1541 fastmath<contract> : f32
%v1543 = arith.addf %v1339, %v1239 fastmath<contract> : f32
%v1544 = arith.constant 0.00000000000000000e+00 : f32
%v1545 = arith.subf %v1544, %v1543 fastmath<contract> : f32
%v1546 = llvm.inline_asm asm_dialect = att "min.f32 $0, $1, $2;", "=f,f,f" %v1543, %v1545 : (f32, f32) -> f32
%v1547 = arith.constant 1.44269504088896339e+00 : f32
%v1548 = arith.mulf %v1546, %v1547 fastmath<contract> : f32
%v1549 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1548 : (f32) -> f32
%v1550 = arith.constant 2.00000000000000000e+00 : f32
%v1551 = arith.addf %v1549, %v1550 fastmath<contract> : f32
%v1552 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1551 : (f32) -> f32
%v1553 = arith.mulf %v1549, %v1552 fastmath<contract> : f32
%v1554 = arith.mulf %v1553, %v1553 fastmath<contract> : f32
%v1555 = arith.constant 1.53846153846153855e-01 : f32
%v1556 = arith.constant 1.81818181818181823e-01 : f32
%v1557 = llvm.intr.fma(%v1555, %v1554, %v1556) : (f32, f32, f32) -> f32
%v1558 = arith.constant 2.22222222222222210e-01 : f32
%v1559 = llvm.intr.fma(%v1557, %v1554, %v1558) : (f32, f32, f32) -> f32
%v1560 = arith.constant 2.85714285714285698e-01 : f32
%v1561 = llvm.intr.fma(%v1559, %v1554, %v1560) : (f32, f32, f32) -> f32
%v1562 = arith.constant 4.00000000000000022e-01 : f32
%v1563 = llvm.intr.fma(%v1561, %v1554, %v1562) : (f32, f32, f32) -> f32
%v1564 = arith.constant 6.66666666666666630e-01 : f32
%v1565 = llvm.intr.fma(%v1563, %v1554, %v1564) : (f32, f32, f32) -> f32
%v1566 = arith.constant 2.00000000000000000e+00 : f32
%v1567 = llvm.intr.fma(%v1565, %v1554, %v1566) : (f32, f32, f32) -> f32
%v1568 = arith.constant 0.00000000000000000e+00 : f32
%v1569 = llvm.inline_asm asm_dialect = att "max.f32 $0, $1, $2;", "=f,f,f" %v1543, %v1568 : (f32, f32) -> f32
%v1570 = llvm.intr.fma(%v1567, %v1553, %v1569) : (f32, f32, f32) -> f32
%v1571 = arith.mulf %v1265, %v1570 fastmath<contract> : f32
%v1572 = arith.extsi %v1271 : i32 to i64
%v1573 = arith.constant 128 : i64
%v1574 = arith.muli %v1572, %v1573 : i64
%v1575 = llvm.getelementptr %g[%v1574] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v1576 = arith.constant 5 : i32
%v1577 = arith.shli %v1186, %v1576 : i32
%v1578 = arith.extsi %v1577 : i32 to i64
%v1579 = llvm.getelementptr %v1575[%v1578] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v1580 = llvm.mlir.undef : vector<4xf32>
%v1581 = arith.constant 0 : i32
%v1582 = llvm.insertelement %v1368, %v1580[%v1581 : i32] : vector<4xf32>
%v1583 = arith.constant 1 : i32
%v1584 = llvm.insertelement %v1397, %v1582[%v1583 : i32] : vector<4xf32>
%v1585 = arith.constant 2 : i32
%v1586 = llvm.insertelement %v1426, %v1584[%v1585 : i32] : vector<4xf32>
%v1587 = arith.constant 3 : i32
%v1588 = llvm.insertelement %v1455, %v1586[%v1587 : i32] : vector<4xf32>
llvm.store %v1588, %v1579 {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<1>
%v1589 = llvm.getelementptr %v1579[16] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
%v1590 = llvm.mlir.undef : vector<4xf32>
%v1591 = arith.constant 0 : i32
%v1592 = llvm.insertelement %v1484, %v1590[%v1591 : i32] : vector<4xf32>
%v1593 = arith.constant 1 : i32
%v1594 = llvm.insertelement %v1513, %v1592[%v1593 : i32] : vector<4xf32>
%v1595 = arith.constant 2 : i32
%v1596 = llvm.insertelement %v1542, %v1594[%v1595 : i32] : vector<4xf32>
%v1597 = arith.constant 3 : i32
%v1598 = llvm.insertelement %v1571, %v1596[%v1597 : i32] : vector<4xf32>
llvm.store %v1598, %v1589 {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<1>
%v1599 = arith.constant -1.44269504088896339e+00 : f32
%v1600 = arith.mulf %v1289, %v1599 fastmath<contract> : f32
%v1601 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1600 : (f32) -> f32
%v1602 = arith.constant 1.00000000000000000e+00 : f32
%v1603 = arith.addf %v1601, %v1602 fastmath<contract> : f32
%v1604 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1603 : (f32) -> f32
%v1605 = arith.constant -1.44269504088896339e+00 : f32
%v1606 = arith.mulf %v1291, %v1605 fastmath<contract> : f32
%v1607 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1606 : (f32) -> f32
%v1608 = arith.constant 1.00000000000000000e+00 : f32
%v1609 = arith.addf %v1607, %v1608 fastmath<contract> : f32
%v1610 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1609 : (f32) -> f32
%v1611 = arith.constant -1.44269504088896339e+00 : f32
%v1612 = arith.mulf %v1295, %v1611 fastmath<contract> : f32
%v1613 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1612 : (f32) -> f32
%v1614 = arith.constant 1.00000000000000000e+00 : f32
%v1615 = arith.addf %v1613, %v1614 fastmath<contract> : f32
%v1616 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1615 : (f32) -> f32
%v1617 = arith.constant -1.44269504088896339e+00 : f32
%v1618 = arith.mulf %v1297, %v1617 fastmath<contract> : f32
%v1619 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1618 : (f32) -> f32
%v1620 = arith.constant 1.00000000000000000e+00 : f32
%v1621 = arith.addf %v1619, %v1620 fastmath<contract> : f32
%v1622 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1621 : (f32) -> f32
%v1623 = arith.constant -1.44269504088896339e+00 : f32
%v1624 = arith.mulf %v1301, %v1623 fastmath<contract> : f32
%v1625 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1624 : (f32) -> f32
%v1626 = arith.constant 1.00000000000000000e+00 : f32
%v1627 = arith.addf %v1625, %v1626 fastmath<contract> : f32
%v1628 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1627 : (f32) -> f32
%v1629 = arith.constant -1.44269504088896339e+00 : f32
%v1630 = arith.mulf %v1303, %v1629 fastmath<contract> : f32
%v1631 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1630 : (f32) -> f32
%v1632 = arith.constant 1.00000000000000000e+00 : f32
%v1633 = arith.addf %v1631, %v1632 fastmath<contract> : f32
%v1634 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1633 : (f32) -> f32
%v1635 = arith.constant -1.44269504088896339e+00 : f32
%v1636 = arith.mulf %v1307, %v1635 fastmath<contract> : f32
%v1637 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1636 : (f32) -> f32
%v1638 = arith.constant 1.00000000000000000e+00 : f32
%v1639 = arith.addf %v1637, %v1638 fastmath<contract> : f32
%v1640 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1639 : (f32) -> f32
%v1641 = arith.constant -1.44269504088896339e+00 : f32
%v1642 = arith.mulf %v1309, %v1641 fastmath<contract> : f32
%v1643 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v1642 : (f32) -> f32
%v1644 = arith.constant 1.00000000000000000e+00 : f32
%v1645 = arith.addf %v1643, %v1644 fastmath<contract> : f32
%v1646 = llvm.inline_asm asm_dialect = att "rcp.approx.ftz.f32 $0, $1;", "=f,f" %v1645 : (f32) -> f32
%v1647 = arith.extsi %v1271 : i32 to i64
%v1648 = arith.constant 64 : i64
%v1649 = arith.muli %v1647, %v1648 : i64
%v1650 = llvm.getelementptr %be[%v1649] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v1651 = arith.constant 4 : i32
%v1652 = arith.shli %v1186, %v1651 : i32
%v1653 = arith.extsi %v1652 : i32 to i64
%v1654 = llvm.getelementptr %v1650[%v1653] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
%v1655 = llvm.inline_asm asm_dialect = att "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f" %v1610, %v1604 : (f32, f32) -> i32
%v1656 = llvm.inline_asm asm_dialect = att "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f" %v1622, %v1616 : (f32, f32) -> i32
%v1657 = llvm.inline_asm asm_dialect = att "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f" %v1634, %v1628 : (f32, f32) -> i32
%v1658 = llvm.inline_asm asm_dialect = att "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f" %v1646, %v1640 : (f32, f32) -> i32
%v1659 = llvm.mlir.undef : vector<4xi32>
%v1660 = arith.constant 0 : i32
%v1661 = llvm.insertelement %v1655, %v1659[%v1660 : i32] : vector<4xi32>
%v1662 = arith.constant 1 : i32
%v1663 = llvm.insertelement %v1656, %v1661[%v1662 : i32] : vector<4xi32>
%v1664 = arith.constant 2 : i32
%v1665 = llvm.insertelement %v1657, %v1663[%v1664 : i32] : vector<4xi32>
%v1666 = arith.constant 3 : i32
%v1667 = llvm.insertelement %v1658, %v1665[%v1666 : i32] : vector<4xi32>
llvm.store %v1667, %v1654 {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<1>
}
}
gpu.return
} } }
