# The simulator of a GPU (MODE=cusim): the part of CUDA that the project uses, in C++. Tests, and
# ./train, are linked with it; kernels for its own tests are in probes.cu. Part of the Makefile.
CUSIM_CC_OBJECTS := $(call OBJ,$(filter-out $(if $(filter yes,$(HAVE_MPI)),,%/mpi.cc),$(sort \
    $(wildcard tests/cusim/*.cc))))
CUSIM_CU_OBJECTS := $(call OBJ,tests/cusim/probes.cu)
CUSIM_OBJECTS := $(CUSIM_CC_OBJECTS) $(CUSIM_CU_OBJECTS) $(BUILD)/tests/cusim/switch.o
DEPEND_CUDA += tests/cusim/compile.sh tests/cusim/kernels.awk
# The compiler's calls at each access of memory, which are made for ThreadSanitizer,
# go to the simulator (tests/cusim/hooks.cc).
HOOK_FLAGS := -fsanitize=thread $(addprefix -mllvm -tsan-,compound-read-before-write=1 \
    instrument-func-entry-exit=0 instrument-atomics=0 handle-cxx-exceptions=0) \
    -fdebug-compilation-dir=.
CUSIM_FLAGS := -std=c++17 -O2 -g -ffp-contract=off -Wall -Wextra $(WERROR) -I. \
    -I$(CUDA_HOME)/include
COMPILE_CU = bash tests/cusim/compile.sh -Itests/cusim/include $(CUSIM_FLAGS) -O1 $(HOOK_FLAGS) \
    -Wno-unknown-pragmas -MMD -MP
KEEP_LOG :=

# The host's side of CUDA tells the simulator of its accesses too.
HOOKED := train.c tests/lib/tiny.c data/text/shards.c data/text/pack.c \
    $(filter zero/%.c model/%.c data/hf/%.c data/peft/%.c data/llmc/%.c data/range.c kernels/mark.c \
    kernels/cuda/%.c,$(C_FILES)) \
    $(filter tests/cusim/test_cusim% tests/zero/test_comm_gpu.c tests/model/test_families.c tests/model/test_adapters.c \
    tests/kernels/test_gpu_variants.c,$(TEST_PROGRAMS))
$(call OBJ,$(HOOKED)): private CC := clang
$(call OBJ,$(HOOKED)): private C_FLAGS := $(filter-out -fopenmp,$(C_FLAGS)) $(HOOK_FLAGS) \
    -I$(CUDA_HOME)/include

$(CUSIM_CC_OBJECTS): $(BUILD)/%.o: %.cc $(DEPEND)
	@mkdir -p $(@D)
	$(SAY) "  compile $<"
	$(RUN)clang++ $(CUSIM_FLAGS) -MMD -MP -c $< -o $@

$(BUILD)/tests/cusim/resources.o: docs/registers.md
$(BUILD)/tests/cusim/switch.o: tests/cusim/switch.S $(DEPEND)
	@mkdir -p $(@D)
	$(RUN)$(CC) -c $< -o $@

# It takes the place of CUDA's libraries, and of the calls by which host threads wait; and it looks
# at the queues of CPU devices, at their kernels that write to pinned memory, and at what a file,
# NVMe or MPI puts there.
# Calls of CUDA that can be made to fail are listed where that is done.
CUSIM_CALLS := $(shell grep -o 'X([a-z]*[A-Z][A-Za-z]*)' tests/cusim/faults.cc | \
    sed 's/X(\(.*\))/\1/')
CUSIM_WRAPPED := $(if $(filter yes,$(HAVE_MPI)),MPI_Irecv) read pread \
    memcpy memmove memset clock_gettime nanosleep pause $(addprefix pthread_,create join \
    mutex_lock mutex_unlock cond_wait cond_timedwait cond_broadcast cond_signal) \
    $(addprefix queue_,open push sync) $(addprefix event_,record wait sync done close) \
    $(addprefix nvme_,open close read write) \
    $(foreach isa,oracle $(ISAS),$(addprefix $(isa)_,adamw cast fill_normal quantize \
    dequantize nf4_quantize nf4_dequantize)) $(CUSIM_CALLS)
CUSIM_LINK := $(CUSIM_WRAPPED:%=-Wl$(comma)--wrap=%)
