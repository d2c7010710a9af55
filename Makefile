# Builds ./train and its tests.
#
#   make            ./train, optimised            make test        every test, release build
#   make cuda       ./train with CUDA, for any GPU
#   make features   the libraries that were found make quick       most tests, in a minute or two
#   make asan, tsan every test under sanitizers
#   make bench      the kernels' speed            make fuzz        the fuzzers of the file readers
#   make format     clang-format, in place        make check-format, clean
#
# Objects lie outside the source, in build/MODE. Every file that is built is named in a list below.
# Where a library is optional the list has a variable in place of a file, and scripts/dev/probe.sh has
# chosen. CC=clang and CFLAGS=... work as usual; a change of compiler or flags rebuilds everything.
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

MATMUL_2 := kernels/cpu/matmul_dnnl.c kernels/cpu/matmul_dnnl2.c
MATMUL_3 := kernels/cpu/matmul_dnnl.c kernels/cpu/matmul_dnnl3.c
MATMUL_none := kernels/cpu/matmul_nodnnl.c
DOWNLOAD_yes := data/text/download.c
DOWNLOAD_none := data/text/download_none.c
SPM_yes := data/text/spm.cc
SPM_none := data/text/spm_none.c
REGEX_yes := data/bpe/regex.c
REGEX_none := data/bpe/regex_none.c
MPI_yes := zero/comm/mpi.c zero/comm/mpi_watch.c
MPI_none := zero/comm/mpi_none.c
URING_yes := zero/offload/nvme_ring.c
URING_none := zero/offload/nvme_ring_none.c
NCCL_yes := zero/comm/nccl.c zero/comm/nccl_watch.c
NCCL_none := zero/comm/nccl_none.c
CUDA_C := device fail launch spans table variants_choose matmul blas_open blas_choose \
    blas_choices blas_tell plan work
CUDA_CU := norm norm_backward gelu swiglu embed embed_sort classifier classifier_part sum adamw \
    cast ranks quantize attention attention_backward attention_plain attention_plain_backward \
    rotate epilogue
# Variants of kernels for one target each (kernels/cuda/variants.h). Code for sm_90a runs on 9.0
# alone, so such a file is compiled for nothing else, and only where ARCHS names its target;
# the simulator is every GPU. All other kernels are compiled for the targets without their letters.
CU_90a :=
VARIANT_ARCHS := $(filter 90a,$(if $(filter cusim,$(MODE)),90a,$(ARCHS)))
CU_VARIANTS := $(foreach a,$(VARIANT_ARCHS),$(CU_$a))
CU_ARCHS := $(sort $(ARCHS:%a=%))
CUDA_yes := $(CUDA_C:%=kernels/cuda/%.c)
CUDA_none := $(addprefix kernels/cuda/,none.c plan.c work.c)
CU_yes := $(CUDA_CU:%=kernels/cuda/%.cu) $(CU_VARIANTS:%=kernels/cuda/%.cu)
CU_FILES := $(CU_$(HAVE_CUDA))

# What fresh memory of the host's holds: kernels/poison.h.
POISON := $(if $(filter asan tsan fuzz cusim,$(MODE)),poison,poison_none)
# Whether a kernel's operands are looked up among the tiers: kernels/tier_check.h.
TIERS := $(if $(filter asan tsan fuzz cusim,$(MODE)),tier_check,tier_check_none)
KERNELS := base flag show cards folder atomic_file tier event mark trace tally cost layout \
    features speed $(POISON) $(TIERS) $(if $(filter-out cusim,$(MODE)),library)
KERNELS_CPU := device queue table instructions matmul ref_gelu ref_matmul ref_attention ref_rotate \
    ref_norm ref_swiglu ref_ends ref_update ref_quantize
MODEL := config sparse sparse_read presets params pieces acts work parts megatron block ends units \
    sample
ZERO := open stages step results reports param chain grad opt state slots
ZERO_comm := comm self thread world wait
ZERO_offload := attach weights gradients update state_io activations move nvme_files nvme_move \
    nvme_preflight
ZERO_pipe := order split pipe
ZERO_rooms := wire/wire master/master hpz/hpz replica/replica tensor/tensor
ZERO_process := lock local_disk request
ZERO_settings := settings settings_flags settings_rules settings_grid schedule
ZERO_checkpoint := checkpoint write folders load local read file shared
ZERO_weights := import import_run export weights_hash
ZERO_rank := rank rank_step rank_sample feed rank_device breakdown score
ZERO_train := job trainer loop ahead saver resume best diverged loss_scale
ZERO_plan := rehearse chains bound footprint capacity candidates count rates choose fit \
    predict table table_json cluster cluster_file cluster_choose cluster_table card
DATA := file stream cache range nearest json
DATA_bpe := unicode unicode_tables compose sets pattern pattern_class symbols split steps \
    steps_split normal added bpe vocab read read_steps read_marks config
DATA_text := ids text encode order sums part shards spm_check tokenizer tokens tokens_layout \
    tokens_write pack mix named examples prepare sha256 walk sources loader loader_ask \
    loader_predict loader_source
DATA_chat := example lines line message shape map scan value shown form_file forms jinja template \
    writer masked ask
DATA_eval := evals items hellaswag hellaswag_bin clean case
DATA_hf := safetensors folder write write_layout names pieces config config_rope config_write \
    model text export kind
DATA_llmc := format model export kind
DATA_deepspeed := rows rows_train rows_zero rows_rest resolve groups groups_train sparse print
DATA_flags := flags flags_value flags_json flags_help options init deepspeed texts
DATA_log := machine appender log tensorboard report progress console

# Compiled once per instruction set, the matmul for AMX too; kernels/cpu/table.c chooses.
ISA_FILES := norm gelu swiglu embed attention attention_backward rotate classifier sum adamw ranks \
    quantize matmul_run matmul_loops matmul_pack matmul_tile
ISA_FLAGS_avx2 := -mavx2 -mfma -mf16c
ISA_FLAGS_avx512 := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma
ISA_FLAGS_avx512bf16 := $(ISA_FLAGS_avx512) -mavx512bf16
ISAS := base avx2 avx512 avx512bf16
ISA_FILES_amx := matmul_run matmul_loops matmul_pack matmul_tile
ISA_FLAGS_amx := $(ISA_FLAGS_avx512bf16) -mamx-tile -mamx-bf16
# gcc before 13.3 aligns the frames that AddressSanitizer keeps on the heap to 32 bytes (its bug
# 110027), where AVX-512 needs 64.
ISA_SANITIZE_asan := $(if $(findstring clang,$(CC)),,--param asan-use-after-return=0)

include tests/tests.mk

C_FILES := $(KERNELS:%=kernels/%.c) $(KERNELS_CPU:%=kernels/cpu/%.c) $(MATMUL_$(HAVE_DNNL)) \
    $(MODEL:%=model/%.c) $(ZERO:%=zero/%.c) $(ZERO_rooms:%=zero/%.c) $(DATA:%=data/%.c) \
    $(foreach r,comm pipe offload process settings checkpoint weights rank train plan, \
        $(ZERO_$(r):%=zero/$(r)/%.c)) \
    $(foreach r,text bpe chat eval hf llmc deepspeed flags log,$(DATA_$(r):%=data/$(r)/%.c)) \
    $(if $(filter yes,$(HAVE_ZLIB)),data/unpack_gz.c,data/unpack_gz_none.c) \
    $(if $(filter yes,$(HAVE_ZSTD)),data/unpack_zst.c,data/unpack_zst_none.c) \
    $(DOWNLOAD_$(HAVE_CURL)) $(SPM_$(HAVE_SPM)) $(MPI_$(HAVE_MPI)) $(NCCL_$(HAVE_NCCL)) \
    $(URING_$(HAVE_URING)) $(REGEX_$(HAVE_PCRE2)) $(CUDA_$(HAVE_CUDA))
ISA_SOURCES := $(ISA_FILES:%=kernels/cpu/%.c)
TEST_SHARED := $(TEST_SHARED:%=%.c)
TEST_PROGRAMS := $(TEST_PROGRAMS:%=%.c)
BENCHES := $(BENCHES:%=tests/bench/%.c)
MPI_PROGRAMS := $(MPI_PROGRAMS_$(HAVE_MPI):%=tests/zero/%.c)
MPI_LIBRARIES := $(MPI_LIBRARIES_$(HAVE_MPI):%=$(BUILD)/tests/%.so)
FAULT_SOURCES := $(FAULT_SOURCES:%=tests/lib/%.c)
FAULT_LIBRARY := $(BUILD)/tests/libfault.so
TRIAL_PROGRAMS := $(TRIAL_PROGRAMS_$(MODE):%=$(BUILD)/tests/%)
PRELOADS := $(PRELOADS:%=$(BUILD)/tests/%.so)
STARTED := $(STARTED_$(MODE):%=tests/bench/%.c)
SMOKE_PARTS := $(SMOKE_PARTS:%=tests/bench/%.c)
FUZZERS := $(FUZZERS:%=tests/fuzz/%.c)

OBJ = $(addprefix $(BUILD)/,$(addsuffix .o,$(basename $(1))))
CUSIM_FILES := $(CUSIM_$(MODE):%=tests/cusim/%.cc)
CUSIM_CU := $(CUSIM_CU_$(MODE):%=tests/cusim/%.cu)
CUSIM_CC_OBJECTS := $(call OBJ,$(CUSIM_FILES))
CUSIM_CU_OBJECTS := $(call OBJ,$(CUSIM_CU))
TEST_CU_OBJECTS := $(call OBJ,$(TEST_CU_$(MODE):%=tests/kernels/%.cu))
CUSIM_OBJECTS := $(CUSIM_CC_OBJECTS) $(CUSIM_CU_OBJECTS) \
    $(if $(CUSIM_FILES),$(BUILD)/tests/cusim/switch.o)
C_OBJECTS := $(call OBJ,$(filter %.c,$(C_FILES)))
CXX_OBJECTS := $(call OBJ,$(filter %.cc,$(C_FILES)))
CU_OBJECTS := $(call OBJ,$(CU_FILES))
ISA_STEMS := $(ISA_SOURCES:%.c=$(BUILD)/%)
ISA_OBJECTS := $(foreach isa,$(ISAS),$(ISA_STEMS:%=%.$(isa).o)) \
    $(ISA_FILES_amx:%=$(BUILD)/kernels/cpu/%.amx.o)
MAIN_OBJECTS := $(BUILD)/train.o
TEST_OBJECTS := $(call OBJ,$(TEST_PROGRAMS) $(TEST_SHARED) $(BENCHES) $(FUZZERS) $(MPI_PROGRAMS) \
    $(STARTED) $(SMOKE_PARTS))
LIBRARY := $(BUILD)/libzero.a
# The program that is made of tests/ROOM/NAME.c.
PROGRAM = $(patsubst %.c,$(BUILD)/tests/%,$(notdir $(1)))
TEST_BINARIES := $(call PROGRAM,$(TEST_PROGRAMS) $(MPI_PROGRAMS) $(STARTED))
BENCH_BINARIES := $(call PROGRAM,$(BENCHES))
FUZZ_BINARIES := $(call PROGRAM,$(FUZZERS))
LIBS := $(foreach l,DNNL SPM CURL MPI URING PCRE2 ZLIB ZSTD,$(LIBS_$l)) \
    $(if $(filter-out cusim,$(MODE)),$(LIBS_CUDA)) -lcjson -lstdc++ -lpthread -lm -ldl

.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all cuda registers test quick list list-quick list-long test-build quick-build asan tsan \
    fuzz fuzz-build bench features format check-format clean

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

# ---- how a file is made --------------------------------------------------------------------------
# Every object depends on this Makefile and on stamp, which holds the compiler and the flags; what
# is told of CUDA's targets depends on a stamp of theirs too.
DEPEND = Makefile $(BUILD)/stamp
DEPEND_CUDA = $(DEPEND) $(BUILD)/stamp_cuda $(CUSIM_TOOLS_$(MODE):%=tests/cusim/%)
ifeq ($(V),1)
SAY := @:
RUN :=
else
SAY := @echo
RUN := @
endif

$(C_OBJECTS) $(MAIN_OBJECTS) $(TEST_OBJECTS): $(BUILD)/%.o: %.c $(DEPEND)
	@mkdir -p $(@D)
	$(SAY) "  compile $<"
	$(RUN)$(CC) $(C_FLAGS) -MMD -MP -c $< -o $@

$(CXX_OBJECTS): $(BUILD)/%.o: %.cc $(DEPEND)
	@mkdir -p $(@D)
	$(SAY) "  compile $<"
	$(RUN)$(CXX) $(CXX_FLAGS) -MMD -MP -c $< -o $@

# -lineinfo costs nothing and lets compute-sanitizer and the profilers name lines.
NVCC_WARNINGS := $(if $(WERROR),-Werror all-warnings) -Xcompiler -Wall,-Wextra
NVCC_FLAGS = -std=c++17 -O3 -lineinfo --fmad=false -I. $(NVCC_WARNINGS) \
    $(foreach a,$(CU_ARCHS),-gencode=arch=compute_$a,code=sm_$a)
# In MODE=cusim the compiler's calls at each access of memory, which are made for ThreadSanitizer,
# go to the simulator (tests/cusim/hooks.cc).
HOOK_FLAGS := -fsanitize=thread $(addprefix -mllvm -tsan-,compound-read-before-write=1 \
    instrument-func-entry-exit=0 instrument-atomics=0 handle-cxx-exceptions=0) \
    -fdebug-compilation-dir=.
CUSIM_FLAGS := -std=c++17 -O2 -g -ffp-contract=off -Wall -Wextra $(WERROR) -I. \
    -I$(CUDA_HOME)/include
ifeq ($(MODE),cusim)
COMPILE_CU = bash tests/cusim/compile.sh -Itests/cusim/include $(CUSIM_FLAGS) -O1 $(HOOK_FLAGS) \
    -Wno-unknown-pragmas -MMD -MP
else
# What the assembler says of registers is kept for scripts/bench/gpu_registers.sh.
COMPILE_CU = $(CUDA_HOME)/bin/nvcc $(NVCC_FLAGS) -Xptxas -v -MMD -MP
KEEP_LOG = 2>$(@:.o=.ptxas) || { cat $(@:.o=.ptxas) >&2; exit 1; }
endif
$(CU_OBJECTS) $(CUSIM_CU_OBJECTS) $(TEST_CU_OBJECTS): $(BUILD)/%.o: %.cu $(DEPEND_CUDA)
	@mkdir -p $(@D)
	$(SAY) "  compile $<"
	$(RUN)$(COMPILE_CU) -c $< -o $@ $(KEEP_LOG)

define VARIANT_RULE
$$(call OBJ,$$(CU_$(1):%=kernels/cuda/%.cu) $$(TEST_CU_$(1):%=tests/kernels/%.cu)): \
    private CU_ARCHS := $(1)
endef
$(foreach a,$(VARIANT_ARCHS),$(eval $(call VARIANT_RULE,$a)))

# The host's side of CUDA tells the simulator of its accesses too.
ifeq ($(MODE),cusim)
HOOKED := train.c tests/lib/tiny.c data/text/shards.c data/text/pack.c \
    $(filter zero/%.c model/%.c data/hf/%.c data/llmc/%.c data/range.c kernels/mark.c \
    kernels/cuda/%.c,$(C_FILES)) \
    $(filter tests/cusim/test_cusim% tests/zero/test_comm_gpu.c tests/model/test_families.c \
    tests/kernels/test_gpu_variants.c,$(TEST_PROGRAMS))
$(call OBJ,$(HOOKED)): private CC := clang
$(call OBJ,$(HOOKED)): private C_FLAGS := $(filter-out -fopenmp,$(C_FLAGS)) $(HOOK_FLAGS) \
    -I$(CUDA_HOME)/include
endif

$(CUSIM_CC_OBJECTS): $(BUILD)/%.o: %.cc $(DEPEND)
	@mkdir -p $(@D)
	$(SAY) "  compile $<"
	$(RUN)clang++ $(CUSIM_FLAGS) -MMD -MP -c $< -o $@

$(BUILD)/tests/cusim/resources.o: docs/registers.md
$(BUILD)/tests/cusim/switch.o: tests/cusim/switch.S $(DEPEND)
	@mkdir -p $(@D)
	$(RUN)$(CC) -c $< -o $@

define ISA_RULE
$$(ISA_STEMS:%=%.$(1).o): $$(BUILD)/%.$(1).o: %.c $$(DEPEND)
	@mkdir -p $$(@D)
	$$(SAY) "  compile $$< for $(1)"
	$$(RUN)$$(CC) $$(C_FLAGS) -DISA=$(1) $$(ISA_FLAGS_$(1)) \
	    $$(ISA_SANITIZE_$(MODE)) -MMD -MP -c $$< -o $$@
endef
$(foreach isa,$(ISAS) amx,$(eval $(call ISA_RULE,$(isa))))

$(BUILD)/zero/comm/mpi.o $(BUILD)/zero/comm/mpi_watch.o $(BUILD)/tests/zero/mpi_stops.o: \
    private C_FLAGS += $(FLAGS_MPI)
$(call OBJ,$(filter kernels/cuda/% zero/comm/nccl%,$(C_FILES))): \
    private C_FLAGS += -I$(CUDA_HOME)/include
$(BUILD)/kernels/cuda/device.o: private C_FLAGS += -DCUDA_ARCHS='"$(ARCHS)"'
$(BUILD)/kernels/features.o: private C_FLAGS += -I$(BUILD)
$(BUILD)/zero/plan/card.o: $(wildcard docs/clusters/*.json) # which it includes
$(BUILD)/kernels/cuda/device.o $(BUILD)/kernels/cuda/variants_choose.o: $(BUILD)/stamp_cuda
# What is in the build, as X(file) X(file) ...
LIST_OF = -DCUDA_VARIANTS='$(foreach f,$(1),X($f))'
$(BUILD)/kernels/cuda/variants_choose.o: private C_FLAGS += -DCUDA_ARCHS='"$(ARCHS)"' \
    $(call LIST_OF,$(CU_VARIANTS))
$(BUILD)/tests/kernels/test_gpu_variants.o: private C_FLAGS += -I$(CUDA_HOME)/include \
    $(call LIST_OF,$(TEST_VARIANTS))

$(LIBRARY): $(C_OBJECTS) $(CXX_OBJECTS) $(CU_OBJECTS) $(ISA_OBJECTS) $(DEPEND_CUDA)
	@rm -f $@
	$(RUN)ar rcsD $@ $(filter %.o,$^)

# The simulator takes the place of CUDA's libraries, and of the calls by which host threads wait;
# and it looks at the queues of CPU devices, at their kernels that write to pinned memory, and at
# what a file, NVMe or MPI puts there.
comma := ,
# Calls of CUDA that can be made to fail are listed where that is done.
CUSIM_CALLS := $(if $(CUSIM_FILES),$(shell \
    grep -o 'X([a-z]*[A-Z][A-Za-z]*)' tests/cusim/faults.cc | sed 's/X(\(.*\))/\1/'))
CUSIM_WRAPPED := $(if $(filter yes,$(HAVE_MPI)),MPI_Irecv) read pread \
    memcpy memmove memset clock_gettime nanosleep pause $(addprefix pthread_,create join \
    mutex_lock mutex_unlock cond_wait cond_timedwait cond_broadcast cond_signal) \
    $(addprefix queue_,open push sync) $(addprefix event_,record wait sync done close) \
    $(addprefix nvme_,open close read write) \
    $(foreach isa,oracle $(ISAS),$(addprefix $(isa)_,adamw cast fill_normal)) $(CUSIM_CALLS)
CUSIM_LINK := $(if $(strip $(CUSIM_OBJECTS)),$(CUSIM_WRAPPED:%=-Wl$(comma)--wrap=%))

$(BUILD)/train: $(MAIN_OBJECTS) $(CUSIM_OBJECTS) $(LIBRARY)
	$(SAY) "  link    $@"
	$(RUN)$(CC) $(LD_FLAGS) $(CUSIM_LINK) $^ $(LIBS) -o $@

# Calls that a test lets fail on purpose.
$(BUILD)/tests/test_checkpoint: WRAP := $(addprefix -Wl$(comma)--wrap=,write fsync rename renameat2)
$(BUILD)/tests/test_cuda_ptx $(BUILD)/tests/test_gpu_variants: $(TEST_CU_OBJECTS)
$(BUILD)/tests/gpu_smoke: $(call OBJ,$(SMOKE_PARTS))
define PROGRAM_RULE
$(call PROGRAM,$(1)): $(call OBJ,$(1))
endef
$(foreach p,$(TEST_PROGRAMS) $(MPI_PROGRAMS) $(STARTED) $(BENCHES) $(FUZZERS),\
    $(eval $(call PROGRAM_RULE,$p)))
$(TEST_BINARIES) $(BENCH_BINARIES): $(call OBJ,$(TEST_SHARED)) $(CUSIM_OBJECTS) $(LIBRARY)
	$(SAY) "  link    $@"
	$(RUN)$(CC) $(LD_FLAGS) $(CUSIM_LINK) $(WRAP) $(filter %.o,$^) $(LIBRARY) $(LIBS) -lcmocka -o $@

$(MPI_LIBRARIES): $(BUILD)/tests/%.so: tests/zero/%.c $(DEPEND)
	@mkdir -p $(@D)
	$(SAY) "  link    $@"
	$(RUN)$(CC) $(C_FLAGS) $(FLAGS_MPI) -fPIC -shared $< -o $@

# What the trials put between ./train and the kernel, and make of what it did (scripts/faults/faults.sh).
$(FAULT_LIBRARY): $(FAULT_SOURCES) tests/lib/fault_calls.h tests/lib/own_code.h $(DEPEND)
	@mkdir -p $(@D)
	$(SAY) "  link    $@"
	$(RUN)$(CC) $(C_FLAGS) -fvisibility=hidden -fPIC -shared $(filter %.c,$^) -ldl -o $@
$(patsubst %,$(BUILD)/tests/%,powercut blockdisk intact): $(BUILD)/tests/%: tests/lib/%.c \
    kernels/hash.h kernels/dtype.h tests/lib/state_file.h $(DEPEND)
	@mkdir -p $(@D)
	$(SAY) "  link    $@"
	$(RUN)$(CC) $(C_FLAGS) $< -o $@
$(PRELOADS): $(BUILD)/tests/%.so: tests/lib/%.c tests/lib/own_code.h $(DEPEND)
	@mkdir -p $(@D)
	$(SAY) "  link    $@"
	$(RUN)$(CC) $(C_FLAGS) -fPIC -shared $< -o $@ -ldl

$(FUZZ_BINARIES): LD_FLAGS += -fsanitize=fuzzer
$(FUZZ_BINARIES): $(LIBRARY)
	$(SAY) "  link    $@"
	$(RUN)$(CC) $(LD_FLAGS) $(WRAP) $(filter %.o,$^) $(LIBRARY) $(LIBS) -o $@

ALL_OBJECTS := $(C_OBJECTS) $(CXX_OBJECTS) $(CU_OBJECTS) $(ISA_OBJECTS) $(MAIN_OBJECTS) \
    $(TEST_OBJECTS) $(CUSIM_OBJECTS) $(TEST_CU_OBJECTS)
-include $(ALL_OBJECTS:.o=.d)

# ---- tests ---------------------------------------------------------------------------------------

ALL_TESTS := $(TEST_PROGRAMS) $(TEST_SCRIPTS)
QUICK_TESTS := $(foreach t,$(ALL_TESTS),$(if $(filter $(LONG),$(notdir $t)),,$t))
# TESTS="tests/data/test_flags.c" builds and runs a part of them.
TESTS ?= $(ALL_TESTS)
# The programs among some tests, and where there are scripts, what those start.
BUILT = $(call PROGRAM,$(filter %.c,$(1))) $(if $(filter-out %.c,$(1)),\
    $(call PROGRAM,$(MPI_PROGRAMS) $(STARTED) $(STARTED_TESTS_$(MODE):%=%.c)) $(MPI_LIBRARIES) \
    $(PRELOADS) $(TRIAL_PROGRAMS))
# Beside all tests fuzzers are compiled, so that they follow what they read; scripts/dev/fuzz.sh
# links them.
test-build: all $(call BUILT,$(TESTS)) \
    $(if $(filter-out $(TESTS),$(ALL_TESTS)),,$(call OBJ,$(FUZZERS)))
quick-build: all $(call BUILT,$(QUICK_TESTS))

RUN_TESTS := TRAIN=$(BUILD)/train TESTS_FIRST="$(LONG)" TESTS_ALONE="$(ALONE)" \
    TESTS_ASLEEP="$(ASLEEP)" bash scripts/dev/run_tests.sh $(BUILD)
test: test-build
	@$(RUN_TESTS) $(TESTS)

# Those that take seconds, of every room.
quick: quick-build
	@$(RUN_TESTS) $(QUICK_TESTS)

list list-quick list-long:
	@echo $(if $(filter list,$@),$(ALL_TESTS),$(if $(filter list-quick,$@),$(QUICK_TESTS),$(LONG)))

asan:
	ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 \
	UBSAN_OPTIONS=print_stacktrace=1 $(MAKE) --no-print-directory MODE=asan CFLAGS="-O2 -g" test

# gcc's own OpenMP library is invisible to ThreadSanitizer and gives false races; LLVM's, with its
# tool libarcher, tells the sanitizer of every fork, join and barrier.
tsan:
	OMP_TOOL_LIBRARIES=libarcher.so \
	TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=1:second_deadlock_stack=1 \
	$(MAKE) --no-print-directory MODE=tsan CC=clang CFLAGS="-O2 -g" test

fuzz:
	bash scripts/dev/fuzz.sh

fuzz-build: $(FUZZ_BINARIES)

bench: all $(BENCH_BINARIES)
	@for b in $(BENCH_BINARIES); do echo "== $$b"; $$b || exit 1; done

# ---- form ----------------------------------------------------------------------------------------

ROOMS := $(foreach top,model zero data kernels tests,$(top) $(top)/*) \
    $(addprefix tests/cusim/include/,cusim kernels/cuda)
FORMATTED = $(wildcard *.c $(foreach d,$(ROOMS),$d/*.[ch] $d/*.cc $d/*.cu $d/*.cuh))
format check-format:
	@printf '%s\n' $(FORMATTED) | xargs -P "$$(nproc)" -n 40 \
	    $(CLANG_FORMAT) $(if $(filter format,$@),-i,--dry-run --Werror)

clean:
	rm -rf build train
