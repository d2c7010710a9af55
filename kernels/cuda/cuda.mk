# CUDA: the files of kernels/cuda, and how nvcc compiles kernels. Part of the Makefile.
CU_FILES_yes := $(sort $(wildcard kernels/cuda/*.cu))
# Variants of kernels for one target each (kernels/cuda/variants.h). Code for sm_90a runs on 9.0
# alone, so such a file is compiled for nothing else, and only where ARCHS names its target;
# the simulator is every GPU. All other kernels are compiled for the targets without their letters.
CU_90a :=
VARIANT_ARCHS := $(filter 90a,$(if $(filter cusim,$(MODE)),90a,$(ARCHS)))
CU_VARIANTS := $(foreach a,$(VARIANT_ARCHS),$(CU_$a))
CU_ARCHS := $(sort $(ARCHS:%a=%))
CUDA_none := $(addprefix kernels/cuda/,none.c plan.c work.c)
CUDA_yes := $(filter-out kernels/cuda/none.c,$(wildcard kernels/cuda/*.c))
CU_FILES := $(filter-out $(CU_90a:%=kernels/cuda/%.cu),$(CU_FILES_$(HAVE_CUDA))) \
    $(CU_VARIANTS:%=kernels/cuda/%.cu)
CU_OBJECTS = $(call OBJ,$(CU_FILES))

# -lineinfo costs nothing and lets compute-sanitizer and the profilers name lines.
NVCC_WARNINGS := $(if $(WERROR),-Werror all-warnings) -Xcompiler -Wall,-Wextra
NVCC_FLAGS = -std=c++17 -O3 -lineinfo --fmad=false -I. $(NVCC_WARNINGS) \
    $(foreach a,$(CU_ARCHS),-gencode=arch=compute_$a,code=sm_$a)
# What the assembler says of registers is kept for scripts/bench/gpu_registers.sh.
COMPILE_CU = $(CUDA_HOME)/bin/nvcc $(NVCC_FLAGS) -Xptxas -v -MMD -MP
KEEP_LOG = 2>$(@:.o=.ptxas) || { cat $(@:.o=.ptxas) >&2; exit 1; }
# What is in the build, as X(file) X(file) ...
LIST_OF = -DCUDA_VARIANTS='$(foreach f,$(1),X($f))'
