#!/bin/bash
# docs/cublaslt.md has the tables that scripts/bench/cublaslt_kernels.sh makes of the library that
# is here, if it is of the version that the page names; and each kind of name is read as the page
# says. Speaks TAP for scripts/dev/run_tests.sh.
set -u
# shellcheck source=tests/lib/tap.sh
. tests/lib/tap.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

page=$(sed -n '/^<!-- cublaslt_kernels -->$/,/^<!-- end -->$/p' docs/cublaslt.md |
    sed '1,2d; $d' | sed '$d')
grep -qE '^cuBLASLt [0-9]+\.[0-9]+\.[0-9]+:$' <<<"$page"
result $? "docs/cublaslt.md names the library's version" "$(head -n 1 <<<"$page")"

name="docs/cublaslt.md is what the library says (scripts/bench/cublaslt_kernels.sh writes it)"
if ! printed=$(scripts/bench/cublaslt_kernels.sh --print 2>"$folder/said"); then
    result 0 "$name # SKIP $(cat "$folder/said")"
elif [ "$(head -n 1 <<<"$page")" != "$(head -n 1 <<<"$printed")" ]; then
    result 0 "$name # SKIP here is $(head -n 1 <<<"$printed")"
else
    seen=$(diff <(echo "$page") <(echo "$printed"))
    result $? "$name" "$seen"
fi

# A library that is made up: it tells its version, and each row has what two or three names say.
cat >"$folder/version.c" <<'END'
unsigned long cublasLtGetVersion(void);
unsigned long cublasLtGetVersion(void) { return 140203; }
END
cat >"$folder/names" <<'END'
sm90_xmma_gemm_bf16bf16_bf16f32_f32_nt_n_tilesize128x64x64_warpgroupsize1x1x1
sm90_xmma_gemm_bf16bf16_bf16f32_f32_nt_n_tilesize128x64x64_warpgroupsize1x1x1_execute_split_k
sm90_xmma_gemm_bf16bf16_bf16f32_f32_nn_n_tilesize128x64x64_warpgroupsize1x1x1_aux_bf16_dgelu
sm90_xmma_gemm_bf16bf16_bf16f32_f32_nn_n_tilesize64x64x64_warpgroupsize1x1x1_aux_bf16_dgelu
sm90_xmma_gemm_f16f16_f16f32_f32_tt_n_tilesize64x64x64_warpgroupsize1x1x1_bgradb
sm90_xmma_gemm_f16f32_f16f32_f32_tt_n_tilesize64x64x64_warpgroupsize1x1x1_aux_f16_dgelu_bgradb
sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_bias_f32
sm90_xmma_gemm_f16f16_f16f16_f16_tn_n_tilesize64x64x64_warpgroupsize1x1x1_bias_f16
sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize256x128x8_stage3_warpsize4x2x1_ffma
_ZN7cutlass7Kernel2I68cutlass_80_tensorop_bf16_s16816gemm_bgradb_bf16_64x64_64x4_nt_align8EEvNT_
_ZN7cutlass7Kernel2I68cutlass_80_tensorop_bf16_s16816gemm_bgradb_bf16_64x64_64x5_nt_align8EEvNT_
_ZN7cutlass7Kernel2I61cutlass_80_tensorop_s16816gemm_bgrada_f16_64x64_64x4_nt_align8EEvNT_
_ZN7cutlass7Kernel2I66cutlass_80_tensorop_f16_s16816gemm_gelu_aux_f16_64x64_64x5_tn_align8EEvNT_
_ZN7cutlass7Kernel2I66cutlass_80_tensorop_f16_s16816gemm_relu_f16_64x64_64x5_tn_align8EEvNT_
_ZN7cutlass7Kernel2I71cutlass_80_tensorop_s16816gemm_planar_complex_bf16_64x64_32x2_tn_align8E
_ZN7cutlass7Kernel2I66cutlass_80_tensorop_s1688gemm_forwardCompat_128x128_16x5_tt_align4EEvNT_
_ZN8cublasLt8epilogue4impl22globalKernelBgradAB_v2ILi8ELi128E13__nv_bfloat16S3_fEEviii
_ZN8cublasLt8epilogue4impl22globalKernelBgradAB_v2ILi8ELi128E14__nv_bfloat162S3_6float2EEviii
nvjet_sm90_%s_%dx%d
nvjet_sm90_tst_128x64_64x8_2x1_v_bz_NNT
END
cat >"$folder/want" <<'END'
cuBLASLt 14.2.3:

| for | format | plain | bias | gelu | gelu and aux | dgelu | dgelu and bgrad | bgrada | bgradb |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|
| 9.0 | bf16 | 1 / 1 nt | no | no | no | 2 / 2 nn | no | no | no |
| 9.0 | bf16 to fp32 | no | no | no | no | no | no | no | no |
| 9.0 | fp16 | no | no | no | no | no | no | no | 1 / 1 tt |
| 9.0 | fp16 to fp32 | no | no | no | no | no | 1 / 1 tt | no | no |
| 9.0 | tf32 | no | 1 / 1 tn | no | no | no | no | no | no |
| 9.0 | fp32 | no | no | no | no | no | no | no | no |
| 8.0 | bf16 | no | no | no | no | no | no | no | 2 / 1 nt |
| 8.0 | bf16 to fp32 | no | no | no | no | no | no | no | no |
| 8.0 | fp16 | no | no | no | 1 / 1 tn | no | no | no | no |
| 8.0 | fp16 to fp32 | no | no | no | no | no | no | 1 / 1 nt | no |
| 8.0 | tf32 | 1 / 1 tt | no | no | no | no | no | no | no |
| 8.0 | fp32 | 1 / 1 tn | no | no | no | no | no | no | no |

| pass of its own | bf16 | fp16 | fp32 |
|---|---:|---:|---:|
| `globalKernel` | 0 | 0 | 0 |
| `globalKernelBgradAB_v1` | 0 | 0 | 0 |
| `globalKernelBgradAB_v2` | 1 | 0 | 0 |

Names of kernels that begin with `nvjet`: 1.
END
library=$folder/libcublasLt.so.14
seen=$("${CC:-cc}" -shared -fPIC "$folder/version.c" -o "$library" 2>&1 &&
    cat "$folder/names" >>"$library" &&
    scripts/bench/cublaslt_kernels.sh --print "$library" 2>&1 | diff "$folder/want" - 2>&1)
result $? "each kind of name has its cell" "$seen"

seen=$(scripts/bench/cublaslt_kernels.sh --print "$folder/none" 2>&1)
[ $? = 2 ] && [ "$seen" = "cublaslt_kernels: there is no $folder/none" ]
result $? "a library that is not there is named" "$seen"
echo "1..$count"
exit $failed
