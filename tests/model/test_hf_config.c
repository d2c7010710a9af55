// config.json's keys against transformers: tests/fixtures/hf_config, which
// scripts/gen/hf_config_fixtures.py made (it says what is there). A model of tests/fixtures/hf with
// edited keys has the loss that transformers has with them, or is refused by name; rotary embedding
// turns as there; and each key that changes something there has the verdict of docs/config-json.md.
#include "data/file.h"
#include "data/hf/config.h"
#include "data/json.h"
#include "tests/lib/hf_rank.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "zero/state.h"

#include <errno.h>
#include <math.h>

enum { B = 2, T = 17 };

static char *text;      // a fixture
static const char *row; // a line of it

static void open_rows(const char *name) {
    struct Error e = {0};
    size_t n;
    char *path = base_format("tests/fixtures/hf_config/%s", name);
    assert_ok(file_read(path, 1 << 20, &text, &n, &e), &e);
    row = text;
    free(path);
}

// The next line; NULL: there is none, and the fixture is closed. cJSON_Delete it.
static cJSON *next_row(void) {
    cJSON *object = *row ? cJSON_ParseWithLength(row, strcspn(row, "\n")) : NULL;
    assert_true(object || !*row);
    row += strcspn(row, "\n");
    row += *row == '\n';
    if (!object)
        free(text);
    return object;
}

static cJSON *read_json(const char *model, const char *name) {
    struct Error e = {0};
    char *path = base_format("tests/fixtures/hf/%s/%s", model, name), *said;
    size_t n;
    assert_ok(file_read(path, 1 << 20, &said, &n, &e), &e);
    cJSON *object = cJSON_ParseWithLength(said, n);
    free(said);
    free(path);
    return object;
}

// A folder with links to the model's weights and another config.json.
static char *edited(const char *model, const cJSON *edits) {
    char *folder = scratch_make(), *here = getcwd(NULL, 0);
    char *link = base_format("ln -s '%s/tests/fixtures/hf/%s/'model* '%s'", here, model, folder);
    assert_int_equal(system(link), 0);
    cJSON *config = read_json(model, "config.json");
    const cJSON *edit;
    cJSON_ArrayForEach(edit, edits) {
        bool null = cJSON_IsString(edit) && !strcmp(edit->valuestring, "null");
        cJSON_DeleteItemFromObjectCaseSensitive(config, edit->string);
        if (!cJSON_IsNull(edit))
            cJSON_AddItemToObject(config, edit->string,
                                  null ? cJSON_CreateNull() : cJSON_Duplicate(edit, true));
    }
    char *printed = cJSON_PrintUnformatted(config);
    free(scratch_write(folder, "config.json", printed, strlen(printed)));
    cJSON_free(printed);
    cJSON_Delete(config);
    free(here);
    free(link);
    return folder;
}

static void fill_feed(struct Rank *r, const char *model) {
    cJSON *facts = read_json(model, "reference.json");
    const char *const names[] = {"tokens", "targets"};
    for (int i = 0; i < 2; i++) {
        int32_t *at = feed_host(&r->feed) + (size_t)i * r->feed.tokens;
        const cJSON *ids, *id;
        cJSON_ArrayForEach(ids, cJSON_GetObjectItem(facts, names[i]))
            cJSON_ArrayForEach(id, ids) *at++ = id->valueint;
    }
    cJSON_Delete(facts);
}

static double loss_of(const char *folder, const char *model) {
    struct Error e = {0};
    struct RankSettings s = {.batch = B,
                             .nmicro = 1,
                             .threads = 1,
                             .device = DEVICE_CPU,
                             .device_bytes = SIZE_MAX,
                             .ranks = 1};
    struct HfModel m;
    struct Rank r;
    assert_ok(hf_rank_config(folder, T, F32, &s.model, &e), &e);
    assert_ok(hf_model_open(&m, folder, &e), &e);
    assert_ok(hf_rank_open(&r, &s, &m, &e), &e);
    fill_feed(&r, model);
    hf_rank_send(&r);
    double sum = zero_eval(&r.zero, &r.acts, true, 0).loss_sum;
    feed_done(&r.feed);
    rank_close(&r);
    hf_model_close(&m);
    return sum / (B * T);
}

TEST(test_edits) {
    cJSON *c;
    int n = 0, refusals = 0;
    open_rows("edits.jsonl");
    for (; (c = next_row()); n++) {
        const char *model = json_text(c, "model"), *refused = json_text(c, "refused");
        char *folder = edited(model, cJSON_GetObjectItem(c, "set")), *flags = NULL;
        double want = json_number(c, "loss");
        struct Error e = {0};
        int err = hf_model_flags(folder, &flags, &e);
        free(flags);
        if (*refused || cJSON_HasObjectItem(c, "fails")) {
            assert_error(err, -EINVAL, &e, "E_HF_CONFIG");
            assert_non_null(strstr(e.text, refused));
            refusals++;
        } else {
            assert_ok(err, &e);
            double got = loss_of(folder, model);
            if (!(fabs(got - want) <= 3e-6 * want))
                fail_msg("%s, %s: the loss is %.9g, transformers say %.9g", model,
                         json_text(c, "name"), got, want);
        }
        scratch_remove(folder);
        cJSON_Delete(c);
    }
    assert_true(n > 40 && refusals > 4);
}

TEST(test_rotations) {
    cJSON *c;
    int n = 0;
    open_rows("rotations.jsonl");
    for (; (c = next_row()); n++) {
        char *flags, *name = base_format("%s", json_text(c, "name"));
        float table[2 * 64 * 2];
        struct Error e = {0};
        assert_ok(hf_config_flags(cJSON_GetObjectItem(c, "config"), name, &flags, &e), &e);
        cJSON *read = cJSON_Parse(flags);
        struct ModelConfig m = {.head_size = (size_t)json_number(read, "head-size"),
                                .rope.theta = json_number(read, "rope-theta")};
        assert_ok(model_rope_scaling(&m.rope, json_text(read, "rope-scaling"), &e), &e);
        const cJSON *want = cJSON_GetObjectItem(c, "inv_freq");
        double factor = json_number(c, "factor");
        assert_int_equal(cJSON_GetArraySize(want), m.head_size / 2);
        model_rope_table(&m, 2, table);
        for (size_t i = 0; i < m.head_size / 2; i++) {
            double w = cJSON_GetArrayItem(want, (int)i)->valuedouble;
            double got = (double)model_rope_frequency(&m, i);
            const float *turned = table + 2 * (m.head_size / 2 + i); // of position 1
            if (!(fabs(got - w) <= 3e-7 * w) || !(fabs(turned[0] - factor * cos(w)) <= 1e-6) ||
                !(fabs(turned[1] - factor * sin(w)) <= 1e-6))
                fail_msg("%s: frequency %zu is %.9g (%.9g, %.9g), transformers say %.9g times %g",
                         name, i, got, (double)turned[0], (double)turned[1], w, factor);
        }
        cJSON_Delete(read);
        cJSON_Delete(c);
        free(flags);
        free(name);
    }
    assert_true(n > 5);
}

// ---- every key ----------------------------------------------------------------------------------

enum Verdict { HONOURED = 1, TOLD = 2, REFUSED = 4 };

// The page's table.
static char *page;
static struct Row {
    char *key, *families, *here;
    int met; // verdicts that a probe had
} rows[128];
static size_t nrow;

static void read_page(void) {
    struct Error e = {0};
    size_t n;
    assert_ok(file_read("docs/config-json.md", 1 << 20, &page, &n, &e), &e);
    char *state, *at;
    for (char *line = strtok_r(page, "\n", &state); line; line = strtok_r(NULL, "\n", &state)) {
        if (strncmp(line, "| `", 3) != 0)
            continue;
        struct Row *r = &rows[nrow++];
        assert_true(nrow < 128);
        r->key = strtok_r(line, "|", &at);
        r->families = strtok_r(NULL, "|", &at);
        assert_non_null(strtok_r(NULL, "|", &at));
        r->here = strtok_r(NULL, "|", &at);
        assert_non_null(r->here);
    }
}

static struct Row *row_of(const char *key, const char *family) {
    char *quoted = base_format(" `%s` ", key);
    struct Row *found = NULL;
    for (size_t i = 0; i < nrow; i++)
        if (strcmp(rows[i].key, quoted) == 0 && strstr(rows[i].families, family))
            found = &rows[i];
    free(quoted);
    return found;
}

// What such a config.json becomes, and what is told of it; *flags NULL: it is refused.
static void read_edited(const char *model, const cJSON *edits, char **flags, char **told) {
    char *folder = edited(model, edits), *path = base_format("%s/config.json", folder), *said;
    struct Error e = {0};
    size_t n;
    assert_ok(file_read(path, 1 << 20, &said, &n, &e), &e);
    cJSON *config = cJSON_ParseWithLength(said, n);
    if (hf_config_flags(config, "config.json", flags, &e))
        assert_true(*flags == NULL && error_is(&e, "E_HF_CONFIG config.json"));
    *told = hf_config_remarks(config, "config.json");
    cJSON_Delete(config);
    free(said);
    free(path);
    scratch_remove(folder);
}

static int verdict_of(const cJSON *c) {
    const char *model = json_text(c, "model");
    char *flags[2], *told[2];
    read_edited(model, cJSON_GetObjectItem(c, "before"), &flags[0], &told[0]);
    read_edited(model, cJSON_GetObjectItem(c, "set"), &flags[1], &told[1]);
    assert_non_null(flags[0]);
    int verdict = !flags[1]                         ? REFUSED
                  : strcmp(flags[0], flags[1]) != 0 ? HONOURED
                  : strcmp(told[0], told[1]) != 0   ? TOLD
                                                    : 0;
    for (int i = 0; i < 2; i++) {
        free(flags[i]);
        free(told[i]);
    }
    return verdict;
}

TEST(test_keys) {
    static const char *const words[] = {"honoured", "told", "refused"};
    cJSON *c;
    int n = 0;
    read_page();
    open_rows("keys.jsonl");
    for (; (c = next_row()); n++) {
        const char *key = json_text(c, "key"), *effect = json_text(c, "effect");
        int verdict = verdict_of(c);
        bool trains = strcmp(effect, "training") == 0, nothing = strcmp(effect, "nothing") == 0;
        if (!nothing && !(verdict & (trains ? TOLD | REFUSED : HONOURED | REFUSED)))
            fail_msg("%s of %s changes the %s, and nothing here", key, json_text(c, "model"),
                     effect);
        struct Row *r = row_of(key, json_text(c, "model"));
        if (!r && verdict)
            fail_msg("%s of %s is %s, and docs/config-json.md has no row of it", key,
                     json_text(c, "model"), words[verdict / 2]);
        if (r)
            r->met |= verdict;
        cJSON_Delete(c);
    }
    assert_true(n > 250);
    for (size_t i = 0; i < nrow; i++)
        for (int v = 0; v < 3; v++)
            if ((strstr(rows[i].here, words[v]) != NULL) != (rows[i].met >> v & 1))
                fail_msg("docs/config-json.md:%s:%s: no probe says so of \"%s\"", rows[i].key,
                         rows[i].here, words[v]);
    free(page);
}

// Whatever stands there, it is taken or refused with one line. `holder` is config, or lies in it.
static void try_odd_values(cJSON *config, cJSON *holder, const char *key) {
    static const char *const odd[] = {"null",
                                      "true",
                                      "\"\"",
                                      "\"x\"",
                                      "-1",
                                      "0",
                                      "0.5",
                                      "1e300",
                                      "[]",
                                      "[1]",
                                      "[{}]",
                                      "{}",
                                      "{\"rope_type\":1}"};
    cJSON *usual = cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(holder, key), true);
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        struct Error e = {0};
        char *flags = NULL;
        cJSON_DeleteItemFromObjectCaseSensitive(holder, key);
        cJSON_AddItemToObject(holder, key, cJSON_Parse(odd[i]));
        int err = hf_config_flags(config, "config.json", &flags, &e);
        free(hf_config_remarks(config, "config.json"));
        if (err)
            assert_error(err, -EINVAL, &e, "E_HF_CONFIG config.json");
        else
            assert_non_null(flags);
        free(flags);
    }
    cJSON_DeleteItemFromObjectCaseSensitive(holder, key);
    if (usual)
        cJSON_AddItemToObject(holder, key, usual);
}

TEST(test_odd_values) {
    static const char *const inside[] = {"rope_type",
                                         "factor",
                                         "low_freq_factor",
                                         "beta_fast",
                                         "original_max_position_embeddings",
                                         "truncate",
                                         "mscale",
                                         "mscale_all_dim",
                                         "attention_factor",
                                         "rope_theta",
                                         "partial_rotary_factor"};
    static const char *const kinds[] = {"linear", "llama3", "yarn"};
    cJSON *c, *config = read_json("llama", "config.json");
    for (size_t k = 0; k < 3; k++) {
        cJSON_DeleteItemFromObjectCaseSensitive(config, "rope_scaling");
        cJSON *rope = cJSON_AddObjectToObject(config, "rope_scaling");
        cJSON_AddStringToObject(rope, "rope_type", kinds[k]);
        cJSON_AddNumberToObject(rope, "factor", 2);
        cJSON_AddNumberToObject(rope, "low_freq_factor", 1);
        cJSON_AddNumberToObject(rope, "high_freq_factor", 4);
        for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++)
            try_odd_values(config, rope, inside[i]);
    }
    cJSON_Delete(config);
    open_rows("keys.jsonl");
    for (char last[64] = ""; (c = next_row()); cJSON_Delete(c)) {
        const char *key = json_text(c, "key");
        if (strcmp(key, last) == 0 || strchr(key, '.'))
            continue;
        snprintf(last, sizeof last, "%s", key);
        config = read_json(json_text(c, "model"), "config.json");
        try_odd_values(config, config, key);
        cJSON_Delete(config);
    }
}
