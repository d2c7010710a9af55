# Builds ./train and its tests.
#
#   make            ./train, optimised            make test        every test, release build
#   make cuda       ./train with CUDA, for any GPU
#   make features   the libraries that were found make quick       most tests, in a minute or two
#   make asan, tsan every test under sanitizers
#   make bench      the kernels' speed            make fuzz        the fuzzers of the file readers
#   make zero_in_200_lines   all stages of ZeRO in one file (docs/learn)
#   make format     clang-format, in place        make check-format, clean
#
# Objects lie outside the source, in build/MODE. Every .c of the rooms below is built; where a library
# is optional, scripts/dev/probe.sh has chosen between two files. What is about CUDA lies in
# kernels/cuda/cuda.mk, tests in tests/tests.mk, the simulator of a GPU in tests/cusim/cusim.mk.
# CC=clang and CFLAGS=... work as usual; a change of compiler or flags rebuilds everything.
# WITHOUT="dnnl spm curl mpi uring pcre2 zlib zstd cuda nccl", or some: as if they were not here.
# CUDA's kernels, where nvcc is installed, are compiled for the GPUs of this machine; without a GPU
# they are left out, as compiling them takes minutes. `make cuda` and CUDA_ARCHS=all build them for
# every target below, CUDA_ARCHS="90" for that compute capability alone; "90a" the same, and with
# them the kernels that no other GPU runs (CU_90a). WERROR= (empty) lets newer compilers warn. V=1
# shows the commands in full.

MODE ?= release
BUILD := build/$(MODE)

ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(origin CXX),default)
CXX := $(subst gcc,g++,$(subst clang,clang++,$(CC)))
endif
CLANG_FORMAT ?= clang-format
# Where each variable lies at each instruction takes a third of the compiler's time, and no bit.
CFLAGS ?= -O3 -g -fno-var-tracking
ALL_ARCHS := 80 86 89 90 90a 100 120
WERROR ?= -Werror

# A variable that nobody has set holds a pattern, not what the stack held before. vptr checks need a
# C++ linker, and find nothing in one small C++ file.
SANITIZE_asan := -fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=all \
    -fno-omit-frame-pointer -ftrivial-auto-var-init=pattern
SANITIZE_tsan := -fsanitize=thread
SANITIZE_fuzz := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize=vptr \
    -fno-sanitize-recover=all -ftrivial-auto-var-init=pattern
SANITIZE := $(SANITIZE_$(MODE))

COMMON := $(CFLAGS) -ffp-contract=off -fno-math-errno -fopenmp -Wall -Wextra $(WERROR) -I. \
    $(SANITIZE)
C_FLAGS := -std=gnu11 -D_GNU_SOURCE $(COMMON)
CXX_FLAGS := -std=c++17 $(COMMON)
LD_FLAGS := $(SANITIZE) -fopenmp $(LDFLAGS)

# ---- what this machine has: HAVE_..., LIBS_... and the table -------------------------------------

ifneq ($(filter-out clean format check-format,$(or $(MAKECMDGOALS),all)),)
# The sanitizers do not know CUDA's memory.
PASS_OVER := $(WITHOUT) $(if $(filter release cusim gpu,$(MODE)),,cuda)
# What is asked for, if anything is; what is built for is ARCHS, in features.mk.
ABOUT_CUDA := $(filter cusim gpu,$(MODE)) $(filter cuda registers,$(MAKECMDGOALS))
ASKED_ARCHS := $(or $(strip $(CUDA_ARCHS)),$(if $(strip $(ABOUT_CUDA)),all))
ASKED_ARCHS := $(if $(filter all,$(ASKED_ARCHS)),$(ALL_ARCHS),$(ASKED_ARCHS))
PROBE := $(shell bash scripts/dev/probe.sh $(BUILD) "$(CC)" "$(C_FLAGS) | $(CXX) | $(LD_FLAGS)" \
    "$(PASS_OVER)" "$(ASKED_ARCHS)" $(if $(filter features,$(MAKECMDGOALS)),2>/dev/null))
ifneq ($(PROBE),ok)
$(error $(PROBE))
endif
include $(BUILD)/features.mk
ifeq ($(filter cuda,$(MAKECMDGOALS))$(HAVE_CUDA),cudanone)
$(error make cuda: no CUDA Toolkit is found (nvcc, beside it cublasLt.h and libcudart_static.a))
endif
NEEDS_CMOCKA := $(filter test test-build quick quick-build bench,$(MAKECMDGOALS))
ifneq ($(and $(NEEDS_CMOCKA),$(shell grep '^cmocka  *not found' $(BUILD)/features.txt)),)
$(error cmocka is missing, which tests and benchmarks need: scripts/setup.sh --test)
endif
endif

# ---- the files -----------------------------------------------------------------------------------

# All .c of these rooms, but of those that stand for a library, or for its lack, the one that fits.
MATMUL_2 := kernels/cpu/matmul_dnnl.c kernels/cpu/matmul_dnnl2.c
MATMUL_3 := kernels/cpu/matmul_dnnl.c kernels/cpu/matmul_dnnl3.c
MATMUL_none := kernels/cpu/matmul_nodnnl.c
MPI_yes := zero/comm/mpi.c zero/comm/mpi_watch.c
MPI_none := zero/comm/mpi_none.c
NCCL_yes := zero/comm/nccl.c zero/comm/nccl_watch.c
NCCL_none := zero/comm/nccl_none.c
# EITHER NAME,LIBRARY: NAME.c with the library, else NAME_none.c.
EITHER = $(1)$(if $(filter yes,$(HAVE_$(2))),,_none).c
BY_LIBRARY := $(MATMUL_$(HAVE_DNNL)) $(MPI_$(HAVE_MPI)) $(NCCL_$(HAVE_NCCL)) \
    $(call EITHER,data/text/download,CURL) $(call EITHER,data/bpe/regex,PCRE2) \
    $(call EITHER,data/unpack_gz,ZLIB) $(call EITHER,data/unpack_zst,ZSTD) \
    $(call EITHER,zero/offload/nvme_ring,URING) \
    $(if $(filter yes,$(HAVE_SPM)),data/text/spm.cc,data/text/spm_none.c)
# Builds that look for mistakes: whether a kernel's operands are looked up among the tiers
# (kernels/tier_check.h), and whether fresh memory of the host's is poisoned (kernels/cpu/device.c).
CHECKED := $(if $(filter asan tsan fuzz cusim,$(MODE)),,_none)
BY_MODE := kernels/tier_check$(CHECKED).c \
    $(if $(filter-out cusim,$(MODE)),kernels/library.c)
CHOSEN := $(MATMUL_2) $(MATMUL_3) $(MATMUL_none) $(MPI_yes) $(NCCL_yes) \
    kernels/tier_check.c kernels/library.c $(addprefix data/,text/download.c bpe/regex.c unpack_gz.c \
    unpack_zst.c) zero/offload/nvme_ring.c

# Compiled once per instruction set, those with products for AMX too; kernels/cpu/table.c chooses.
ISA_FILES := norm gelu dropout swiglu embed attention attention_backward attention_cached rotate \
    classifier sum adamw ranks quantize nf4 matmul_run matmul_loops matmul_pack matmul_tile matmul_few
ISA_FLAGS_avx2 := -mavx2 -mfma -mf16c
ISA_FLAGS_avx512 := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma
ISA_FLAGS_avx512bf16 := $(ISA_FLAGS_avx512) -mavx512bf16
ISAS := base avx2 avx512 avx512bf16
ISA_FILES_amx := attention attention_backward attention_cached matmul_run matmul_loops matmul_pack \
    matmul_tile matmul_few
ISA_FLAGS_amx := $(ISA_FLAGS_avx512bf16) -mamx-tile -mamx-bf16
# gcc before 13.3 aligns the frames that AddressSanitizer keeps on the heap to 32 bytes (its bug
# 110027), where AVX-512 needs 64.
ISA_SANITIZE_asan := $(if $(findstring clang,$(CC)),,--param asan-use-after-return=0)

include kernels/cuda/cuda.mk

ISA_SOURCES := $(sort $(ISA_FILES:%=kernels/cpu/%.c))
C_FILES := $(filter-out %_none.c $(CHOSEN) $(ISA_SOURCES),$(wildcard $(addsuffix /*.c,kernels \
    kernels/cpu model zero zero/* data data/*))) $(BY_LIBRARY) $(BY_MODE) $(CUDA_$(HAVE_CUDA))
OBJ = $(addprefix $(BUILD)/,$(addsuffix .o,$(basename $(1))))
C_OBJECTS := $(call OBJ,$(filter %.c,$(C_FILES)))
CXX_OBJECTS := $(call OBJ,$(filter %.cc,$(C_FILES)))
ISA_STEMS := $(ISA_SOURCES:%.c=$(BUILD)/%)
ISA_OBJECTS := $(foreach isa,$(ISAS),$(ISA_STEMS:%=%.$(isa).o)) \
    $(ISA_FILES_amx:%=$(BUILD)/kernels/cpu/%.amx.o)
MAIN_OBJECTS := $(BUILD)/train.o
LEARN := $(BUILD)/zero_in_200_lines
LEARN_OBJECTS := $(BUILD)/docs/learn/zero_in_200_lines.o
LIBRARY := $(BUILD)/libzero.a
LIBS := $(foreach l,DNNL SPM CURL MPI URING PCRE2 ZLIB ZSTD,$(LIBS_$l)) \
    $(if $(filter-out cusim,$(MODE)),$(LIBS_CUDA)) -lcjson -lstdc++ -lpthread -lm -ldl

# ---- how a file is made --------------------------------------------------------------------------
# Every object depends on the makefiles that say how it is made, and on stamp, which holds the compiler
# and the flags; what is told of CUDA's targets depends on a stamp of theirs too.
DEPEND := Makefile $(if $(filter cusim,$(MODE)),tests/cusim/cusim.mk) $(BUILD)/stamp
DEPEND_CUDA := $(DEPEND) kernels/cuda/cuda.mk $(BUILD)/stamp_cuda
ifeq ($(V),1)
SAY := @:
RUN :=
else
SAY := @echo
RUN := @
endif

$(C_OBJECTS) $(MAIN_OBJECTS) $(LEARN_OBJECTS): $(BUILD)/%.o: %.c $(DEPEND)
	@mkdir -p $(@D)
	$(SAY) "  compile $<"
	$(RUN)$(CC) $(C_FLAGS) -MMD -MP -c $< -o $@

$(CXX_OBJECTS): $(BUILD)/%.o: %.cc $(DEPEND)
	@mkdir -p $(@D)
	$(SAY) "  compile $<"
	$(RUN)$(CXX) $(CXX_FLAGS) -MMD -MP -c $< -o $@

define ISA_RULE
$$(ISA_STEMS:%=%.$(1).o): $$(BUILD)/%.$(1).o: %.c $$(DEPEND)
	@mkdir -p $$(@D)
	$$(SAY) "  compile $$< for $(1)"
	$$(RUN)$$(CC) $$(C_FLAGS) -DISA=$(1) $$(ISA_FLAGS_$(1)) \
	    $$(ISA_SANITIZE_$(MODE)) -MMD -MP -c $$< -o $$@
endef
$(foreach isa,$(ISAS) amx,$(eval $(call ISA_RULE,$(isa))))

# The names of its files, so that one that goes leaves it.
$(BUILD)/stamp_files: FORCE
	@echo '$(C_FILES) $(CU_FILES)' | cmp -s - $@ || echo '$(C_FILES) $(CU_FILES)' >$@
FORCE:

$(LIBRARY): $(C_OBJECTS) $(CXX_OBJECTS) $(CU_OBJECTS) $(ISA_OBJECTS) $(DEPEND_CUDA) $(BUILD)/stamp_files
	@rm -f $@
	$(RUN)ar rcsD $@ $(filter %.o,$^)

# ---- what is made --------------------------------------------------------------------------------

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all cuda registers test quick list list-quick list-long test-build quick-build asan tsan \
    fuzz fuzz-build bench features zero_in_200_lines format check-format clean

ifeq ($(MODE),release)
all: train
# The run-time file is replaced, not written over, so that a running ./train is not disturbed.
train: $(BUILD)/train
	@ln -f $< $@
else
all: $(BUILD)/train
endif

# With CUDA's kernels for every target, and so for any GPU, which need not be in this machine.
cuda: all

# The kernels alone, for scripts/bench/gpu_registers.sh.
registers: $(CU_OBJECTS)

features:
	@cat $(BUILD)/features.txt

include tests/tests.mk

# What some files need beside. They come behind what the simulator says of the same files.
$(call OBJ,zero/comm/mpi.c zero/comm/mpi_watch.c tests/zero/mpi_stops.c): \
    private C_FLAGS += $(FLAGS_MPI)
$(call OBJ,$(filter kernels/cuda/% zero/comm/nccl%,$(C_FILES))): \
    private C_FLAGS += -I$(CUDA_HOME)/include
$(BUILD)/kernels/cuda/device.o: private C_FLAGS += -DCUDA_ARCHS='"$(ARCHS)"'
$(BUILD)/kernels/cuda/variants_choose.o: private C_FLAGS += -DCUDA_ARCHS='"$(ARCHS)"' \
    $(call LIST_OF,$(CU_VARIANTS))
$(BUILD)/tests/kernels/test_gpu_variants.o: private C_FLAGS += -I$(CUDA_HOME)/include \
    $(call LIST_OF,$(TEST_VARIANTS))
$(BUILD)/train.o: private C_FLAGS += -I$(BUILD)
$(BUILD)/kernels/cpu/device.o: private C_FLAGS += -DPOISON_HOST=$(if $(CHECKED),false,true)
$(BUILD)/kernels/cuda/device.o $(BUILD)/kernels/cuda/variants_choose.o: $(BUILD)/stamp_cuda
$(BUILD)/zero/plan/card.o: $(wildcard docs/clusters/*.json) # which it includes
$(BUILD)/zero/plan/page.o: zero/plan/page.html # likewise

$(BUILD)/train: $(MAIN_OBJECTS) $(CUSIM_OBJECTS) $(LIBRARY)
	$(SAY) "  link    $@"
	$(RUN)$(CC) $(LD_FLAGS) $(CUSIM_LINK) $^ $(LIBS) -o $@

zero_in_200_lines: $(LEARN)
$(LEARN): $(LEARN_OBJECTS) $(LIBRARY)
	$(SAY) "  link    $@"
	$(RUN)$(CC) $(LD_FLAGS) $^ $(LIBS) -o $@

-include $(patsubst %.o,%.d,$(C_OBJECTS) $(CXX_OBJECTS) $(CU_OBJECTS) $(ISA_OBJECTS) $(MAIN_OBJECTS) \
    $(LEARN_OBJECTS) $(TEST_OBJECTS) $(CUSIM_OBJECTS) $(TEST_CU_OBJECTS))

# ---- form ----------------------------------------------------------------------------------------

ROOMS := $(foreach top,model zero data kernels tests,$(top) $(top)/*) \
    $(addprefix tests/cusim/include/,cusim kernels/cuda)
FORMATTED = $(wildcard *.c docs/learn/*.c $(foreach d,$(ROOMS),$d/*.[ch] $d/*.cc $d/*.cu $d/*.cuh))
format check-format:
	@printf '%s\n' $(FORMATTED) | xargs -P "$$(nproc)" -n 40 \
	    $(CLANG_FORMAT) $(if $(filter format,$@),-i,--dry-run --Werror)

clean:
	rm -rf build train
