# Tests, benchmarks and fuzzers: their lists, how they are linked, and the goals that run them. Part
# of the Makefile.
#
# Tests, by room. Programs lie side by side in $(BUILD)/tests, whichever room their source is in.
IN = $(addprefix tests/$(strip $(1))/,$(2))
KERNEL_TESTS := $(call IN,kernels,test_kernels_matmul test_kernels_norm test_kernels_attention \
    test_kernels_seen test_kernels_cached test_kernels_sparse test_kernels_sparse_seen test_kernels_rotate \
    test_kernels_swiglu test_kernels_dropout test_kernels_ends \
    test_kernels_update test_kernels_adamw test_kernels_master test_kernels_fill \
    test_kernels_ranks test_kernels_quantize test_kernels_nf4 test_kernels_tier test_kernels_packed test_kernels_parts \
    test_kernels_parts_embed)
URING_TESTS_yes := $(call IN,zero,test_nvme test_nvme_faults test_offload test_delay \
    test_offload_resume test_keep test_plan_offload test_master test_pipe_delay test_trace_zero)
URING_BENCHES_yes := bench_nvme bench_step
# Sanitizers take memory of their own.
RESIDENT_TESTS_release := $(call IN,zero,test_footprint)
CPU_TESTS := $(KERNEL_TESTS) $(call IN,data,test_tokens test_tokenizer test_bpe test_bpe_kinds test_fit test_loader \
    test_inputs test_token_formats test_pack test_examples test_mix test_order test_download test_fetched test_prepare test_cache test_flags \
    test_config test_progress test_log test_machine test_tensorboard test_safetensors \
    test_hf_folder test_hf_write test_hf_complete test_peft \
    test_llmc test_llmc_write test_chat test_chat_lines test_conversation test_prompts test_printed test_shapes test_stream test_unpack_none test_eval test_deepspeed test_deepspeed_passes test_deepspeed_public) \
    $(call IN,kernels,test_matmul_edges test_kernels_few test_hash test_trace test_base) \
    $(call IN,model,test_model test_sample test_generated test_units test_families test_hf_config test_pieces test_sparse test_lora_targets test_adapters) \
    $(call IN,zero,test_parts test_part_weights test_bitwise test_queues test_checkpoint test_loss_scale test_stages \
    test_every_family test_frozen test_lora test_base_dtype test_breakdown test_reshape test_sampling test_comm test_rank_device \
    test_settings test_plan test_packed test_tensor test_pipe test_pipe_tied test_pipe_time \
    test_pipeline_plan test_split test_wire test_counted test_score test_choose test_cluster \
    test_combinations) $(URING_TESTS_$(HAVE_URING)) \
    $(RESIDENT_TESTS_$(MODE))
URING_GPU_TESTS_yes := $(call IN,zero,test_gpu_offload)
NCCL_TESTS_yes := $(call IN,zero,test_nccl_watch)
TEST_PROGRAMS_gpu := $(KERNEL_TESTS) $(call IN,kernels,test_gpu_attention test_cuda_ptx test_blas \
    test_blas_forms \
    test_gpu_variants test_step_kernels) $(call IN,zero,test_gpu_host test_comm_gpu \
    test_gpu_train test_breakdown test_sampling) $(call IN,model,test_families test_adapters) $(URING_GPU_TESTS_$(HAVE_URING)) \
    $(NCCL_TESTS_$(HAVE_NCCL))
TEST_PROGRAMS_cusim := $(call IN,cusim,test_cusim test_cusim_counters test_cusim_memory \
    test_cusim_streams test_cusim_threads) $(call IN,kernels,test_blas_refused) \
    $(call IN,zero,test_gpu_grids test_gpu_start) \
    $(TEST_PROGRAMS_gpu)
TEST_PROGRAMS := $(or $(TEST_PROGRAMS_$(MODE)),$(CPU_TESTS))
TEST_SCRIPTS_release := tests/test_train.sh tests/test_outputs.sh tests/kernels/test_any_cpu.sh \
    $(call IN,data,test_edges.sh test_names.sh test_deepspeed.sh) tests/data/test_chat_asked.sh tests/data/test_jsonl.sh \
    tests/data/test_evaluate.sh tests/data/test_chat_answers.sh \
    tests/data/test_bpe.sh \
    $(call IN,zero,test_learn.sh test_exercises.sh test_plan.sh test_page.sh test_chains.sh test_card.sh test_replicas.sh test_tensor.sh test_pipe.sh test_wire.sh test_sparse.sh test_mpi.sh test_mpi_faults.sh test_scarce.sh \
    test_run_edges.sh test_run_folders.sh test_models.sh test_exports.sh test_model_flags.sh test_fine_tuning.sh test_lora.sh test_diverged.sh test_keep_best.sh test_master.sh \
    test_fit_auto.sh test_slow_reader.sh test_waits.sh test_cluster.sh test_nodes.sh) \
    $(call IN,scripts,test_chapters.sh test_docs.sh test_plot.sh test_view.sh test_view_page.sh test_compare.sh test_runner.sh test_setup.sh test_tools.sh test_probe.sh test_portable.sh test_gpu_check.sh \
    test_gpu_parts.sh test_gpu_calls.sh test_bench_gpu.sh $(if $(filter yes,$(HAVE_CUDA)),test_registers.sh test_sass.py)) \
    $(call IN,torch,test_checkpoint_reader.py test_losses_rule.py)
TEST_SCRIPTS_cusim := tests/scripts/test_gpu_smoke.sh tests/zero/test_mpi_gpu.sh
TEST_SCRIPTS := $(TEST_SCRIPTS_$(MODE))
# Programs that take longer than some 15 seconds where nothing else runs: they begin first, in this
# order, and `make quick` leaves them out. Each room has others; tests/scripts/test_runner.sh looks.
LONG_release := test_mpi.sh test_docs.sh test_page.sh test_view_page.sh test_learn.sh test_delay.c test_plan.sh test_pipe.sh test_queues.c test_offload.c \
    test_stages.c test_run_edges.sh test_plan_offload.c test_outputs.sh test_offload_resume.c \
    test_runner.sh test_corruption.c test_nvme.c test_matmul_edges.c test_keep.c \
    test_mpi_faults.sh test_scarce.sh test_gpu_parts.sh test_bench_gpu.sh test_master.c \
    test_replicas.sh test_wire.sh test_models.sh test_fit_auto.sh test_deepspeed.sh test_every_family.c \
    test_cluster.sh test_nodes.sh test_chapters.sh
LONG_cusim := test_gpu_train.c test_gpu_grids.c test_gpu_offload.c test_kernels_attention.c \
    test_kernels_seen.c test_kernels_sparse.c test_kernels_sparse_seen.c \
    test_blas_refused.c test_kernels_matmul.c test_blas.c test_blas_forms.c test_mpi_gpu.sh
LONG := $(or $(LONG_$(MODE)),$(LONG_release))
# Programs that give others some seconds to answer, or look at times: nothing runs beside them.
ALONE := test_nccl_watch.c test_gpu_calls.sh test_trace.c test_fit_auto.sh \
    test_slow_reader.sh test_waits.sh test_breakdown.c test_pipe_time.c test_cluster.sh
# Programs that wait for time-outs, disks, slow queues and mpirun, and compute for half of their time
# at most: two of them at a time run beside all others.
ASLEEP := test_mpi_faults.sh test_mpi.sh test_mpi_gpu.sh test_scarce.sh test_run_edges.sh test_run_folders.sh \
    test_delay.c test_queues.c test_bench_gpu.sh
# Not tests by themselves: test_gpu_smoke.sh and gpu_check.sh start gpu_smoke, tokenizer_compare.sh
# tokenizer_check, exports_torch.sh chat_texts, real_model.sh train_batches, test_page.sh page_points,
# and test_mpi*.sh mpi_ranks and mpi_stops.
STARTED_release := tokenizer_check chat_texts train_batches page_points
# Tests that test_any_cpu.sh and test_chat_asked.sh start.
STARTED_TESTS_release := $(call IN,kernels,test_kernels_matmul test_matmul_edges) \
    tests/data/test_chat_lines
STARTED_cusim := gpu_smoke
STARTED_gpu := gpu_smoke
SMOKE_PARTS := smoke_product smoke_attention
MPI_PROGRAMS_yes := mpi_ranks mpi_stops
MPI_LIBRARIES_yes := pmpi_count
# Put in front of ./train by test_scarce.sh.
PRELOADS := scarce
STEP := $(call IN,bench,step_rows step_measure step_count step_budget)
RIG_cusim := $(call IN,lib,rig_cuda gpu_runs left_out moved) $(STEP)
RIG_gpu := $(call IN,lib,rig_cuda gpu_runs left_out) tests/cusim/real $(STEP)
RIG_cpu := tests/lib/rig_cpu
# Of a release, tests and benches compute on the CPU. What a build without CUDA has stands before
# the library where they are linked, so that 120 MB of GPUs' kernels stay out of each of them.
TEST_SHARED := $(if $(filter releaseyes,$(MODE)$(HAVE_CUDA)),kernels/cuda/none) \
    $(if $(filter releaseyes,$(MODE)$(HAVE_NCCL)),zero/comm/nccl_none) \
    $(call IN,lib,test values rig tiny outcome gradients planned zero_trace combination disk_faults hf_rank seats) \
    $(or $(RIG_$(MODE)),$(RIG_cpu))
# Kernels of tests, in the simulator and on a GPU.
TEST_CU_90a := variant_kernels
TEST_VARIANTS := $(foreach a,$(VARIANT_ARCHS),$(TEST_CU_$a))
TEST_CU_cusim := ptx_kernels $(TEST_VARIANTS)
TEST_CU_gpu := ptx_kernels $(TEST_VARIANTS)
BENCHES_gpu := bench_cuda bench_attention step_kernels
BENCHES_cusim := step_kernels
BENCHES := bench_kernels bench_adamw $(BENCHES_$(MODE)) \
    $(URING_BENCHES_$(HAVE_URING))
FUZZERS := fuzz_tokens fuzz_tokenizer_model fuzz_text fuzz_config fuzz_checkpoint fuzz_log fuzz_kept \
    fuzz_safetensors fuzz_llmc fuzz_chat fuzz_stream fuzz_eval fuzz_deepspeed fuzz_bpe fuzz_peft
# The trials (docs/reliability.md): a covering part of them is a test, and what they are made of.
TEST_PROGRAMS += $(if $(TEST_PROGRAMS_$(MODE)),,$(call IN,zero,test_corruption))
TEST_SCRIPTS += $(if $(filter release,$(MODE)),$(call IN,zero,test_faults.sh))
LONG += $(if $(filter release,$(MODE)),test_faults.sh)
FAULT_SOURCES := fault fault_settings fault_record
TRIAL_PROGRAMS_release := libfault.so powercut blockdisk intact

# ---- how they are made ---------------------------------------------------------------------------

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

TEST_CU_OBJECTS := $(call OBJ,$(TEST_CU_$(MODE):%=tests/kernels/%.cu))
TEST_OBJECTS := $(call OBJ,$(TEST_PROGRAMS) $(TEST_SHARED) $(BENCHES) $(FUZZERS) $(MPI_PROGRAMS) \
    $(STARTED) $(SMOKE_PARTS))
# The program that is made of tests/ROOM/NAME.c.
PROGRAM = $(patsubst %.c,$(BUILD)/tests/%,$(notdir $(1)))
TEST_BINARIES := $(call PROGRAM,$(TEST_PROGRAMS) $(MPI_PROGRAMS) $(STARTED))
BENCH_BINARIES := $(call PROGRAM,$(BENCHES))
FUZZ_BINARIES := $(call PROGRAM,$(FUZZERS))
comma := ,
ifeq ($(MODE),cusim)
include tests/cusim/cusim.mk
endif

$(TEST_OBJECTS): $(BUILD)/%.o: %.c $(DEPEND)
	@mkdir -p $(@D)
	$(SAY) "  compile $<"
	$(RUN)$(CC) $(C_FLAGS) -MMD -MP -c $< -o $@
$(CU_OBJECTS) $(CUSIM_CU_OBJECTS) $(TEST_CU_OBJECTS): $(BUILD)/%.o: %.cu $(DEPEND_CUDA)
	@mkdir -p $(@D)
	$(SAY) "  compile $<"
	$(RUN)$(COMPILE_CU) -c $< -o $@ $(KEEP_LOG)
define VARIANT_RULE
$$(call OBJ,$$(CU_$(1):%=kernels/cuda/%.cu) $$(TEST_CU_$(1):%=tests/kernels/%.cu)): \
    private CU_ARCHS := $(1)
endef
$(foreach a,$(VARIANT_ARCHS),$(eval $(call VARIANT_RULE,$a)))


# A tokenizer of tests in place of the program's (tests/lib/toy_tokenizer.h).
$(patsubst %,$(BUILD)/tests/%,test_chat test_chat_lines test_shapes fuzz_chat \
    chat_texts): WRAP = $(addprefix \
    -Wl$(comma)--wrap=tokenizer_,encode encode_plain control token_text begin end chat_template describe decode)
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

# ---- the goals ------------------------------------------------------------------------------------

ALL_TESTS := $(TEST_PROGRAMS) $(TEST_SCRIPTS)
QUICK_TESTS := $(foreach t,$(ALL_TESTS),$(if $(filter $(LONG),$(notdir $t)),,$t))
# TESTS="test_flags test_train.sh" builds and runs a part of them, with or without folder and ending.
TEST_NAMED = $(or $(strip $(foreach t,$(ALL_TESTS),\
    $(if $(filter $(1),$t $(notdir $t) $(basename $(notdir $t))),$t))),\
    $(error TESTS: there is no test $(1); `make list` names all))
override TESTS := $(if $(TESTS),$(foreach t,$(TESTS),$(call TEST_NAMED,$t)),$(ALL_TESTS))
# The programs among some tests, and where there are scripts, what those start.
BUILT = $(call PROGRAM,$(filter %.c,$(1))) $(if $(filter-out %.c,$(1)),\
    $(call PROGRAM,$(MPI_PROGRAMS) $(STARTED) $(STARTED_TESTS_$(MODE):%=%.c)) $(MPI_LIBRARIES) \
    $(PRELOADS) $(TRIAL_PROGRAMS) $(if $(filter release,$(MODE)),$(LEARN)))
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
# tool libarcher, tells the sanitizer of every fork, join and barrier. Tests kill children that they
# have forked beside OpenMP's threads.
tsan:
	OMP_TOOL_LIBRARIES=libarcher.so \
	TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=1:second_deadlock_stack=1:die_after_fork=0 \
	$(MAKE) --no-print-directory MODE=tsan CC=clang CFLAGS="-O2 -g" test

fuzz:
	bash scripts/dev/fuzz.sh

fuzz-build: $(FUZZ_BINARIES)

bench: all $(BENCH_BINARIES)
	@for b in $(BENCH_BINARIES); do echo "== $$b"; $$b || exit 1; done
