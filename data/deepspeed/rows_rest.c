// Keys of what a run tells and saves, and of DeepSpeed's other libraries. A row is key, types,
// verdict, flag, what to say, keys inside: see rows.h.
#include "data/deepspeed/rows.h"

#define SPARSE "takes part in --sparse-attention"

const struct DsRow ds_rest_rows[] = {
    {"tensorboard", "o", DS_HONOURED, NULL, "absent: --tensorboard", NULL, 0},
    {"tensorboard.output_path", "t", DS_NOT_APPLICABLE, NULL, "events go to --out", NULL, 0},
    {"tensorboard.job_name", "t", DS_NOT_APPLICABLE, NULL, "events go to --out", NULL, 0},
    {"csv_monitor", "o", DS_EQUAL, NULL, "--out has a log of every step",
     "enabled output_path job_name", 0},
    {"wandb", "o", DS_REFUSED, NULL, "leave it out, as --out has TensorBoard's events and a log",
     "enabled group team project", 0},
    {"comet", "o", DS_REFUSED, NULL, "leave it out, as --out has TensorBoard's events and a log",
     "enabled api_key experiment_key experiment_name mode online project samples_log_interval "
     "workspace",
     0},
    {"wall_clock_breakdown", "b", DS_HONOURED, "breakdown",
     "where true; --trace FILE shows each operation's time", NULL, 0},
    {"memory_breakdown", "b", DS_NOT_APPLICABLE, NULL, "memory is told before and after a run",
     NULL, 0},
    {"dump_state", "b", DS_NOT_APPLICABLE, NULL, "config.json in --out has every flag", NULL, 0},
    {"log_level", "t", DS_NOT_APPLICABLE, NULL, "of Python's logger", NULL, 0},
    {"disable_python_gc", "b", DS_NOT_APPLICABLE, NULL, "there is no Python", NULL, 0},
    {"vocabulary_size", "i", DS_NOT_APPLICABLE, NULL, "the tokenizer's; DeepSpeed only warns of it",
     NULL, 0},
    {"dataloader_drop_last", "b", DS_NOT_APPLICABLE, NULL, "every batch is full", NULL, 0},
    {"comms_config", "*", DS_NOT_APPLICABLE, NULL, "DeepSpeed reads comms_logger alone", "*", 0},
    {"monitor_config", "*", DS_NOT_APPLICABLE, NULL,
     "DeepSpeed reads tensorboard, wandb, comet and csv_monitor alone", "*", 0},
    {"comms_logger", "o", DS_NOT_APPLICABLE, NULL, "bytes of each collective are told at the end",
     "enabled verbose prof_all prof_ops debug", 0},
    {"flops_profiler", "o", DS_NOT_APPLICABLE, NULL, "--peak-tflops X tells MFU",
     "enabled recompute_fwd_factor profile_step module_depth top_modules detailed output_file", 0},
    {"timers", "o", DS_NOT_APPLICABLE, NULL, "each line tells tokens a second",
     "throughput throughput.enabled throughput.synchronized", 0},

    {"checkpoint", "o", DS_NOT_APPLICABLE, NULL,
     "--save-every, --save-async, --keep; any stage and count of ranks reads a checkpoint",
     "tag_validation load_universal use_node_local_storage parallel_write "
     "parallel_write.pipeline_stage checkpoint_serialization writer writer.type "
     "writer.io_buffer_size writer.io_buffer_double writer.show_statistics writer.data_parallel "
     "writer.decoupled writer.io_multiplier",
     0},
    {"nebula", "o", DS_REFUSED, NULL, "use --save-async",
     "enabled load_path enable_nebula_load persistent_storage_path persistent_time_interval "
     "num_of_version_in_retention nebula_load_path",
     0},
    {"datastates_ckpt", "O", DS_REFUSED, NULL, "use --save-async", "*", 0},

    {"zero_allow_untested_optimizer", "b", DS_NOT_APPLICABLE, NULL, "there is AdamW alone", NULL,
     0},
    {"zero_force_ds_cpu_optimizer", "b", DS_NOT_APPLICABLE, NULL, "there is AdamW alone", NULL, 0},
    {"sequence_parallel_size", "i", DS_REFUSED, NULL,
     "Ulysses, which is not built: leave it out; --sequence-parallel is Megatron's", NULL, 1},
    {"tensor_parallel", "o", DS_NOT_APPLICABLE, NULL, "but for autotp_size, all follows from --tp",
     "dtype injection_policy_tuple keep_module_on_host kernel_inject partition_config preset_model "
     "replace_with_kernel_inject tensor_parallel tensor_parallel.mpu tensor_parallel.tp_grain_size "
     "tensor_parallel.tp_group tp tp.mpu tp.tp_grain_size tp.tp_group tp_overlap_comm "
     "vocab_parallel_ce_backend vocab_parallel_lm_head",
     0},
    {"tensor_parallel.autotp_size", "i", DS_HONOURED, "tp", "0: there is none", NULL, 0},
    {"tensor_parallel.tensor_parallel.tp_size|tensor_parallel.tp.tp_size", "i", DS_HONOURED, NULL,
     "1, or what autotp_size says", NULL, 0},
    {"pipeline.stages", "ti", DS_REFUSED, NULL, "give it as --pp, and leave it out", NULL, 1},
    {"pipeline", "o", DS_NOT_APPLICABLE, NULL, "stages are cut by --pp-split",
     "partition seed_layers activation_checkpoint_interval pipe_partitioned grad_partitioned", 0},
    {"expert_parallel", "o", DS_REFUSED, NULL, "models have no experts",
     "enabled async_split_plan autoep_size combine_impl comm_backend comm_max_tokens_per_rank "
     "comm_num_sm comm_qp_margin disable_triton_grouped_mm expert_activation expert_pattern "
     "expert_tensor_parallel_size expert_w1 expert_w2 expert_w3 gate_up_impl has_shared_experts "
     "load_balance_coeff moe_layer_pattern num_expert_groups num_experts_attr num_limited_groups "
     "preset_model route_norm route_scale routed_scaling_factor router_pattern row_weighting_impl "
     "score_apply score_func shared_experts_gate_pattern shared_experts_pattern top_k top_k_attr "
     "use_grouped_mm validate_folding_routing",
     0},
    {"use_data_before_expert_parallelism", "b", DS_NOT_APPLICABLE, NULL, "models have no experts",
     NULL, 0},

    {"compile", "*", DS_NOT_APPLICABLE, NULL,
     "kernels are written by hand; what it would offload: --offload-optimizer, --offload-param, "
     "--offload-activations",
     "*", 0},
    {"graph_harvesting", "b", DS_NOT_APPLICABLE, NULL, "of CUDA graphs; results would not change",
     NULL, 0},
    {"hybrid_engine", "o", DS_REFUSED, NULL, "--sample-every and --sample-only generate text",
     "enabled enable_cuda_graph inference_tp_size max_out_tokens pin_parameters "
     "release_inference_cache tp_gather_partition_size",
     0},
    {"weight_quantization", "O", DS_REFUSED, NULL, "weights are in --dtype",
     "enabled num_bits q_groups q_type quantized_initialization post_init_quant", 0},
    {"autotuning", "o", DS_REFUSED, NULL, "--fit auto chooses what fits and is fastest",
     "enabled arg_mappings end_profile_step exps_dir fast max_train_batch_size "
     "max_train_micro_batch_size_per_gpu metric metric_path min_train_batch_size "
     "min_train_micro_batch_size_per_gpu model_info model_info.hidden_size model_info.num_layers "
     "model_info.num_params model_info.profile model_info_path mp_size "
     "num_tuning_micro_batch_sizes overwrite results_dir start_profile_step start_step end_step "
     "tuner_early_stopping tuner_num_trials tuner_type",
     0},
    {"elasticity", "o", DS_REFUSED, NULL,
     "a run stops and goes on with other --ranks: --resume auto", "*", 0},
    {"data_efficiency", "o", DS_REFUSED, NULL, "order the data before training", "*", 0},
    {"curriculum_learning", "o", DS_REFUSED, NULL, "order the data before training", "*", 0},
    {"progressive_layer_drop", "o", DS_REFUSED, NULL, "every layer is always run", "*", 0},
    {"eigenvalue", "o", DS_REFUSED, NULL, "it is of quantized training", "*", 0},
    {"quantize_training", "E", DS_REFUSED, NULL, "weights are in --dtype", "*", 0},
    {"compression_training", "E", DS_REFUSED, NULL, "weights are in --dtype, and all are kept", "*",
     0},
    {"sparse_attention", "o", DS_HONOURED, NULL, NULL, NULL, 0},
    {"sparse_attention.mode", "t", DS_HONOURED, "sparse-attention", "absent: fixed", NULL, 0},
    {"sparse_attention.block", "i", DS_HONOURED, NULL, SPARSE, NULL, 0},
    {"sparse_attention.different_layout_per_head", "b", DS_HONOURED, NULL, SPARSE, NULL, 0},
    {"sparse_attention.num_local_blocks", "i", DS_HONOURED, NULL, SPARSE, NULL, 0},
    {"sparse_attention.num_global_blocks", "i", DS_HONOURED, NULL, SPARSE, NULL, 0},
    {"sparse_attention.num_different_global_patterns", "i", DS_HONOURED, NULL, SPARSE, NULL, 0},
    {"sparse_attention.num_random_blocks", "i", DS_HONOURED, NULL, SPARSE, NULL, 0},
    {"sparse_attention.num_sliding_window_blocks", "i", DS_HONOURED, NULL, SPARSE, NULL, 0},
    {"sparse_attention.local_window_blocks", "l", DS_HONOURED, NULL, SPARSE, NULL, 0},
    {"sparse_attention.global_block_indices", "l", DS_HONOURED, NULL, SPARSE, NULL, 0},
    {"sparse_attention.global_block_end_indices", "l", DS_HONOURED, NULL, SPARSE, NULL, 0},
    {"sparse_attention.attention", "t", DS_HONOURED, NULL, "unidirectional alone", NULL, 0},
    {"sparse_attention.horizontal_global_attention", "b", DS_REFUSED, NULL,
     "unidirectional attention has none", NULL, 0},
};
const size_t ds_rest_count = sizeof ds_rest_rows / sizeof ds_rest_rows[0];
