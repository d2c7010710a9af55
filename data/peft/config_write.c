// Writes adapter_config.json: see config.h. Keys at their defaults that programs other than PEFT
// look at are there, too.
#include "data/peft/config.h"

#include "data/json.h"

#include <cjson/cJSON.h>

void peft_config_write(const struct PeftConfig *c, bool gpt2, char **text) {
    cJSON *config = cJSON_CreateObject();
    cJSON_AddStringToObject(config, "peft_type", "LORA");
    cJSON_AddStringToObject(config, "task_type", "CAUSAL_LM");
    cJSON_AddItemToObject(config, "base_model_name_or_path",
                          *c->base ? cJSON_CreateString(c->base) : cJSON_CreateNull());
    cJSON_AddNullToObject(config, "revision");
    cJSON_AddTrueToObject(config, "inference_mode");
    cJSON_AddNumberToObject(config, "r", (double)c->rank);
    cJSON_AddNumberToObject(config, "lora_alpha", c->alpha);
    cJSON_AddNumberToObject(config, "lora_dropout", c->dropout);
    cJSON *targets = cJSON_AddArrayToObject(config, "target_modules");
    for (int t = 0; t < NLORA; t++)
        if (c->targets >> t & 1)
            cJSON_AddItemToArray(targets,
                                 cJSON_CreateString(lora_target_name((enum LoraTarget)t, gpt2)));
    cJSON_AddBoolToObject(config, "fan_in_fan_out", gpt2); // Conv1D's weights are (in, out)
    cJSON_AddStringToObject(config, "bias", "none");
    cJSON_AddTrueToObject(config, "init_lora_weights");
    cJSON_AddFalseToObject(config, "use_rslora");
    cJSON_AddFalseToObject(config, "use_dora");
    cJSON_AddObjectToObject(config, "rank_pattern");
    cJSON_AddObjectToObject(config, "alpha_pattern");
    cJSON_AddNullToObject(config, "modules_to_save");
    cJSON_AddNullToObject(config, "layers_to_transform");
    *text = json_file_text(config);
}
