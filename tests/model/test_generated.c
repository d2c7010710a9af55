// Greedy texts of each family, token by token: those that transformers' generate() makes of the
// same folder (scripts/gen/generate_fixture.py), from a cache in a rank that does not train.
#include "tests/lib/generate.h"
#include "tests/lib/hf_rank.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "tests/fixtures/hf/"

enum { PROMPT = 6, LONGEST = 256 };

static cJSON *read_texts(void) {
    FILE *f = fopen(FOLDER "generated.json", "rb");
    char text[1 << 14];
    CHECK(f, "no " FOLDER "generated.json");
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    cJSON *texts = cJSON_Parse(text);
    CHECK(texts, FOLDER "generated.json is no JSON");
    return texts;
}

static void check_text(const char *family, const cJSON *wanted, const char *kernels, int threads) {
    size_t count = (size_t)cJSON_GetArraySize(wanted), i = 0;
    char *folder = base_format(FOLDER "%s", family);
    struct RankSettings s = {.batch = 1,
                             .nmicro = 1,
                             .cache_dtype = NDTYPE,
                             .threads = threads,
                             .kernels = kernels,
                             .device_bytes = SIZE_MAX,
                             .ranks = 1};
    struct Sampling greedy = {.temperature = 0};
    struct HfModel model;
    struct Rank r;
    struct Error e = {0};
    int32_t text[LONGEST], want[LONGEST];
    const cJSON *id;
    assert_in_range(count, PROMPT + 1, LONGEST);
    cJSON_ArrayForEach(id, wanted) want[i++] = id->valueint;
    CHECK(!hf_rank_config(folder, count, F32, &s.model, &e), "%s", e.text);
    settings_set_inference(&s);
    settings_set_cache(&s, 1);
    CHECK(!hf_model_open(&model, folder, &e), "%s", e.text);
    int err = hf_rank_open(&r, &s, &model, &e);
    if (err == -ENOTSUP) {
        print_message("not tested on this CPU: %s\n", e.text);
    } else {
        CHECK(!err, "%s", e.text);
        memcpy(text, want, PROMPT * sizeof *text);
        assert_int_equal(rank_generate(&r, text, PROMPT, count - PROMPT, &greedy), count - PROMPT);
        for (i = 0; i < count; i++)
            if (text[i] != want[i])
                fail_msg("%s, %s: token %zu is %d, transformers' %d", family, kernels, i, text[i],
                         want[i]);
    }
    rank_close(&r);
    hf_model_close(&model);
    free(folder);
}

TEST(each_family_writes_what_transformers_does) {
    static const char *const kernels[] = {"oracle", "base", "avx2", "avx512", "amx"};
    cJSON *texts = read_texts(), *text;
    assert_in_range(cJSON_GetArraySize(texts), 6, 100);
    for (size_t k = 0; k < sizeof kernels / sizeof kernels[0]; k++)
        cJSON_ArrayForEach(text, texts) check_text(text->string, text, kernels[k], 2);
    // More threads than tiles of keys, and then tiles that several of them share.
    check_text("llama", cJSON_GetObjectItemCaseSensitive(texts, "llama"), "avx2", 12);
    cJSON_Delete(texts);
}
