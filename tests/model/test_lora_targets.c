// Lists of LoRA's targets (--lora-targets): words and PEFT's names mean what PEFT takes them for in
// each family, and any other is refused with what is wrong about it.
#include "model/lora.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"

#include <errno.h>

#define BIT(t) (1u << LORA_##t)
#define ATTENTION (BIT(Q) | BIT(K) | BIT(V) | BIT(O))
#define MLP (BIT(GATE) | BIT(UP) | BIT(DOWN))

TEST(targets_are_read) {
    static const struct {
        const char *text;
        bool gpt2;
        unsigned want;
    } rows[] = {
        {"attention", false, ATTENTION},
        {"mlp", false, MLP},
        {"all", false, ATTENTION | MLP},
        {"all-linear", false, ATTENTION | MLP},
        {"mlp,attention", false, ATTENTION | MLP},
        {"q_proj,v_proj", false, BIT(Q) | BIT(V)},
        {"k_proj,o_proj", false, BIT(K) | BIT(O)},
        {"gate_proj,up_proj,up_proj", false, BIT(GATE) | BIT(UP)},
        {"mlp.down_proj,self_attn.q_proj", false, BIT(DOWN) | BIT(Q)},
        {"attention", true, BIT(Q) | BIT(O)},
        {"mlp", true, BIT(UP) | BIT(DOWN)},
        {"all", true, BIT(Q) | BIT(O) | BIT(UP) | BIT(DOWN)},
        {"c_attn", true, BIT(Q)},
        {"c_proj", true, BIT(O) | BIT(DOWN)},
        {"attn.c_proj", true, BIT(O)},
        {"mlp.c_proj,c_fc", true, BIT(DOWN) | BIT(UP)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct Error e = {0};
        unsigned got = 99;
        assert_ok(lora_read_targets(&got, rows[i].text, rows[i].gpt2, &e), &e);
        if (got != rows[i].want)
            fail_msg("%s: %#x, wanted %#x", rows[i].text, got, rows[i].want);
    }
    for (int gpt2 = 0; gpt2 < 2; gpt2++)
        for (int t = 0; t < NLORA; t++) {
            struct Error e = {0};
            const char *name = lora_target_name((enum LoraTarget)t, gpt2);
            unsigned got;
            assert_int_equal(name != NULL, lora_targets_all(gpt2) >> t & 1);
            if (!name)
                continue;
            assert_ok(lora_read_targets(&got, name, gpt2, &e), &e);
            assert_int_equal(got, 1u << t);
        }
}

TEST(wrong_targets_are_refused) {
    static const struct {
        const char *text;
        bool gpt2;
        const char *said;
    } rows[] = {
        {"", false, "E_LORA ''"},
        {"q_proj,", false, "E_LORA ''"},
        {"q_proj, v_proj", false, "E_LORA ' v_proj'"},
        {"proj", false, "E_LORA 'proj'"},
        {"q_pro", false, "E_LORA 'q_pro'"},
        {"_proj", false, "E_LORA '_proj'"},
        {"query", false, "E_LORA 'query'"},
        {"q_proj,c_attn", false, "E_LORA 'c_attn' is of another family"},
        {"gate_proj", true, "E_LORA 'gate_proj' is of another family"},
        {"embed_tokens", false, "E_LORA embeddings and heads"},
        {"all,lm_head", false, "E_LORA embeddings and heads"},
        {"wte", true, "E_LORA embeddings and heads"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct Error e = {0};
        unsigned kept = 99;
        assert_error(lora_read_targets(&kept, rows[i].text, rows[i].gpt2, &e), -EINVAL, &e,
                     rows[i].said);
        assert_int_equal(kept, 99);
        assert_non_null(strstr(e.text, "--lora-targets"));
    }
}
