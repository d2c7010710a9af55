// Keys of logs and checkpoints, and of DeepSpeed's other libraries. A row is key, types, verdict,
// flag, reason, keys inside: see rows.h.
#include "data/deepspeed/rows.h"

static const char in_dtype[] = "weights keep the format of --dtype; leave it out";
static const char one_order[] = "samples come in a shuffled order, and no other; leave it out";
static const char saved_async[] =
    "leave it out, and give --save-async: checkpoints are then written while training goes on";
#define SPARSE "takes part in --sparse-attention"

const struct DsRow ds_rest_rows[] = {
    {"tensorboard", "o", DS_HONOURED, .why = "absent: --tensorboard"},
    {"tensorboard.output_path", "t", DS_NOT_APPLICABLE, .why = "events go to --out"},
    {"tensorboard.job_name", "t", DS_NOT_APPLICABLE, .why = "events go to --out"},
    {"csv_monitor", "o", DS_EQUAL, .why = "--out has a log of every step",
     .inner = "enabled output_path job_name"},
    {"wandb", "o", DS_REFUSED, .why = "leave it out, as --out has TensorBoard's events and a log",
     .inner = "enabled group team project"},
    {"comet", "o", DS_REFUSED, .why = "leave it out, as --out has TensorBoard's events and a log",
     .inner = "enabled api_key experiment_key experiment_name mode online project "
              "samples_log_interval workspace"},
    {"wall_clock_breakdown", "b", DS_HONOURED, .flag = "breakdown",
     .why = "where true; --trace FILE shows each operation's time"},
    {"memory_breakdown", "b", DS_NOT_APPLICABLE, .why = "memory is told before and after a run"},
    {"dump_state", "b", DS_NOT_APPLICABLE, .why = "config.json in --out has every flag"},
    {"log_level", "t", DS_NOT_APPLICABLE, .why = "of Python's logger"},
    {"disable_python_gc", "b", DS_NOT_APPLICABLE, .why = "there is no Python"},
    {"vocabulary_size", "i", DS_NOT_APPLICABLE,
     .why = "the tokenizer's; DeepSpeed only warns of it"},
    {"dataloader_drop_last", "b", DS_NOT_APPLICABLE, .why = "every batch is full"},
    {"comms_config", "*", DS_NOT_APPLICABLE, .why = "DeepSpeed reads comms_logger alone",
     .inner = "*"},
    {"monitor_config", "*", DS_NOT_APPLICABLE,
     .why = "DeepSpeed reads tensorboard, wandb, comet and csv_monitor alone", .inner = "*"},
    {"comms_logger", "o", DS_NOT_APPLICABLE, .why = "bytes of each collective are told at the end",
     .inner = "enabled verbose prof_all prof_ops debug"},
    {"flops_profiler", "o", DS_NOT_APPLICABLE, .why = "--peak-tflops X tells MFU",
     .inner =
         "enabled recompute_fwd_factor profile_step module_depth top_modules detailed output_file"},
    {"timers", "o", DS_NOT_APPLICABLE, .why = "each line tells tokens a second",
     .inner = "throughput throughput.enabled throughput.synchronized"},

    {"checkpoint", "o", DS_NOT_APPLICABLE,
     .why = "--save-every, --save-async, --keep; any stage and count of ranks reads a checkpoint",
     .inner = "tag_validation load_universal use_node_local_storage parallel_write "
              "parallel_write.pipeline_stage checkpoint_serialization writer writer.type "
              "writer.io_buffer_size writer.io_buffer_double writer.show_statistics "
              "writer.data_parallel writer.decoupled writer.io_multiplier"},
    {"nebula", "o", DS_REFUSED, .why = saved_async,
     .inner = "enabled load_path enable_nebula_load persistent_storage_path "
              "persistent_time_interval num_of_version_in_retention nebula_load_path"},
    {"datastates_ckpt", "O", DS_REFUSED, .why = saved_async, .inner = "*"},

    {"zero_allow_untested_optimizer", "b", DS_NOT_APPLICABLE, .why = "there is AdamW alone"},
    {"zero_force_ds_cpu_optimizer", "b", DS_NOT_APPLICABLE, .why = "there is AdamW alone"},
    {"sequence_parallel_size", "i", DS_REFUSED,
     .why = "Ulysses is not supported; set it to 1, or leave it out (--sequence-parallel is "
            "Megatron's)",
     .most = 1},
    {"tensor_parallel", "o", DS_NOT_APPLICABLE, .why = "but for autotp_size, all follows from --tp",
     .inner = "dtype injection_policy_tuple keep_module_on_host kernel_inject partition_config "
              "preset_model replace_with_kernel_inject tensor_parallel tensor_parallel.mpu "
              "tensor_parallel.tp_grain_size tensor_parallel.tp_group tp tp.mpu tp.tp_grain_size "
              "tp.tp_group tp_overlap_comm vocab_parallel_ce_backend vocab_parallel_lm_head"},
    {"tensor_parallel.autotp_size", "i", DS_HONOURED, .flag = "tp", .why = "0: there is none"},
    {"tensor_parallel.tensor_parallel.tp_size|tensor_parallel.tp.tp_size", "i", DS_HONOURED,
     .why = "1, or what autotp_size says"},
    {"pipeline.stages", "ti", DS_REFUSED, .why = "leave it out, and give this number as --pp",
     .most = 1},
    {"pipeline", "o", DS_NOT_APPLICABLE, .why = "stages are cut by --pp-split",
     .inner =
         "partition seed_layers activation_checkpoint_interval pipe_partitioned grad_partitioned"},
    {"expert_parallel", "o", DS_REFUSED, .why = "models here have no experts; leave it out",
     .inner = "enabled async_split_plan autoep_size combine_impl comm_backend "
              "comm_max_tokens_per_rank comm_num_sm comm_qp_margin disable_triton_grouped_mm "
              "expert_activation expert_pattern expert_tensor_parallel_size expert_w1 expert_w2 "
              "expert_w3 gate_up_impl has_shared_experts load_balance_coeff moe_layer_pattern "
              "num_expert_groups num_experts_attr num_limited_groups preset_model route_norm "
              "route_scale routed_scaling_factor router_pattern row_weighting_impl score_apply "
              "score_func shared_experts_gate_pattern shared_experts_pattern top_k top_k_attr "
              "use_grouped_mm validate_folding_routing"},
    {"use_data_before_expert_parallelism", "b", DS_NOT_APPLICABLE, .why = "models have no experts"},

    {"compile", "*", DS_NOT_APPLICABLE,
     .why = "kernels are written by hand; what it would offload: --offload-optimizer, "
            "--offload-param, --offload-activations",
     .inner = "*"},
    {"graph_harvesting", "b", DS_NOT_APPLICABLE, .why = "of CUDA graphs; results would not change"},
    {"hybrid_engine", "o", DS_REFUSED,
     .why = "leave it out; --sample-every, --sample-only and --chat generate text",
     .inner = "enabled enable_cuda_graph inference_tp_size max_out_tokens pin_parameters "
              "release_inference_cache tp_gather_partition_size"},
    {"weight_quantization", "O", DS_REFUSED, .why = in_dtype,
     .inner = "enabled num_bits q_groups q_type quantized_initialization post_init_quant"},
    {"autotuning", "o", DS_REFUSED,
     .why = "leave it out; --fit auto chooses what fits and is fastest",
     .inner = "enabled arg_mappings end_profile_step exps_dir fast max_train_batch_size "
              "max_train_micro_batch_size_per_gpu metric metric_path min_train_batch_size "
              "min_train_micro_batch_size_per_gpu model_info model_info.hidden_size "
              "model_info.num_layers model_info.num_params model_info.profile model_info_path "
              "mp_size num_tuning_micro_batch_sizes overwrite results_dir start_profile_step "
              "start_step end_step tuner_early_stopping tuner_num_trials tuner_type"},
    {"elasticity", "o", DS_REFUSED,
     .why = "the number of ranks does not change during a run; leave it out, and to go on with "
            "another number, stop the run and start it again with that --ranks and --resume auto",
     .inner = "*"},
    {"data_efficiency", "o", DS_REFUSED, .why = one_order, .inner = "*"},
    {"curriculum_learning", "o", DS_REFUSED, .why = one_order, .inner = "*"},
    {"progressive_layer_drop", "o", DS_REFUSED,
     .why = "every layer is run in every step; leave it out", .inner = "*"},
    {"eigenvalue", "o", DS_REFUSED,
     .why = "it belongs to quantized training, which is not built; leave it out", .inner = "*"},
    {"quantize_training", "E", DS_REFUSED, .why = in_dtype, .inner = "*"},
    {"compression_training", "E", DS_REFUSED,
     .why = "weights keep the format of --dtype, and none is pruned; leave it out", .inner = "*"},
    {"sparse_attention", "o", DS_HONOURED, .why = "its keys:"},
    {"sparse_attention.mode", "t", DS_HONOURED, .flag = "sparse-attention", .why = "absent: fixed"},
    {"sparse_attention.block", "i", DS_HONOURED, .why = SPARSE},
    {"sparse_attention.different_layout_per_head", "b", DS_HONOURED, .why = SPARSE},
    {"sparse_attention.num_local_blocks", "i", DS_HONOURED, .why = SPARSE},
    {"sparse_attention.num_global_blocks", "i", DS_HONOURED, .why = SPARSE},
    {"sparse_attention.num_different_global_patterns", "i", DS_HONOURED, .why = SPARSE},
    {"sparse_attention.num_random_blocks", "i", DS_HONOURED, .why = SPARSE},
    {"sparse_attention.num_sliding_window_blocks", "i", DS_HONOURED, .why = SPARSE},
    {"sparse_attention.local_window_blocks", "l", DS_HONOURED, .why = SPARSE},
    {"sparse_attention.global_block_indices", "l", DS_HONOURED, .why = SPARSE},
    {"sparse_attention.global_block_end_indices", "l", DS_HONOURED, .why = SPARSE},
    {"sparse_attention.attention", "t", DS_HONOURED, .why = "unidirectional alone"},
    {"sparse_attention.horizontal_global_attention", "b", DS_REFUSED,
     .why = "unidirectional attention has none; set it to false, or leave it out"},
};
const size_t ds_rest_count = sizeof ds_rest_rows / sizeof ds_rest_rows[0];
