// A cluster's file: one JSON object, each of whose keys is a row of the table below.
//
// Every number stands there: a rate that nobody said would be a guess. Keys that nobody knows are
// refused, since one that is mistyped would otherwise be passed over; so are numbers that no
// machine has. "sources" says of any key where its number is from, and is for readers.
#include "zero/plan/cluster.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <string.h>

enum { MOST_RANKS = 16384 };
static const double MOST = 1e18; // FLOP or bytes, and more than any has

enum KeyType { KEY_COUNT, KEY_BYTES, KEY_RATE, KEY_SECONDS };

// The values that each type of key may have.
static const char *const type_values[] = {[KEY_COUNT] = "a whole number from 1 to 16384",
                                          [KEY_BYTES] = "a number of bytes from 0 to 1e18",
                                          [KEY_RATE] = "a number above 0, up to 1e18, per second",
                                          [KEY_SECONDS] = "a number of seconds from 0 to 1"};

#define AT(field) offsetof(struct Cluster, field)
static const struct ClusterKey {
    const char *name;
    enum KeyType type;
    size_t at;
    bool fused; // only of attention that keeps no scores: may be missing where it keeps them
} keys[] = {
    {"nodes", KEY_COUNT, AT(nodes), false},
    {"gpus_per_node", KEY_COUNT, AT(node_gpus), false},
    {"gpu_memory_bytes", KEY_BYTES, AT(device_bytes), false},
    {"matmul_flops", KEY_RATE, AT(matmul), false},
    {"attention_forward_flops", KEY_RATE, AT(attention_forward), true},
    {"attention_backward_flops", KEY_RATE, AT(attention_backward), true},
    {"memory_bytes_per_s", KEY_RATE, AT(memory), false},
    {"call_seconds", KEY_SECONDS, AT(call), false},
    {"near_bytes_per_s", KEY_RATE, AT(near.rate), false},
    {"near_latency_seconds", KEY_SECONDS, AT(near.latency), false},
    {"far_bytes_per_s", KEY_RATE, AT(far.rate), false},
    {"far_latency_seconds", KEY_SECONDS, AT(far.latency), false},
    {"host_memory_bytes", KEY_BYTES, AT(host_bytes), false},
    {"host_update_bytes_per_s", KEY_RATE, AT(host_update), false},
    {"to_gpu_bytes_per_s", KEY_RATE, AT(in), false},
    {"from_gpu_bytes_per_s", KEY_RATE, AT(out), false},
    {"disk_bytes", KEY_BYTES, AT(disk_bytes), false},
    {"disk_read_bytes_per_s", KEY_RATE, AT(read), false},
    {"disk_written_bytes_per_s", KEY_RATE, AT(written), false},
};
enum { NKEY = sizeof keys / sizeof keys[0] };
static const char *const text_keys[] = {"name", "attention", "sources"};

static const struct ClusterKey *key_named(const char *name) {
    for (int i = 0; i < NKEY; i++)
        if (!strcmp(keys[i].name, name))
            return &keys[i];
    return NULL;
}

static bool is_text_key(const char *name) {
    for (size_t i = 0; i < sizeof text_keys / sizeof text_keys[0]; i++)
        if (!strcmp(text_keys[i], name))
            return true;
    return false;
}

static int refuse_value(const char *path, const cJSON *item, const char *expected,
                        struct Error *e) {
    char *is = cJSON_PrintUnformatted(item);
    int err = error_set(e, -EINVAL, E_CLUSTER_FILE, "--cluster %s: \"%.40s\" is %.60s: expected %s",
                        path, item->string, is ? is : "?", expected);
    cJSON_free(is);
    return err;
}

static int check_names(const char *path, const cJSON *tree, struct Error *e) {
    for (const cJSON *item = tree->child; item; item = item->next)
        if (!key_named(item->string) && !is_text_key(item->string))
            return error_set(e, -EINVAL, E_CLUSTER_FILE,
                             "--cluster %s: unknown key \"%.40s\"; docs/scaling.md lists all keys",
                             path, item->string);
    return 0;
}

static bool is_value_valid(const struct ClusterKey *k, const cJSON *item) {
    double v = cJSON_IsNumber(item) ? item->valuedouble : NAN;
    double most = k->type == KEY_COUNT ? MOST_RANKS : k->type == KEY_SECONDS ? 1 : MOST;
    bool whole = k->type != KEY_COUNT || v == floor(v);
    bool positive = k->type == KEY_COUNT || k->type == KEY_RATE;
    return v <= most && whole && (positive ? v > 0 : v >= 0);
}

static int read_number(const char *path, const cJSON *tree, const struct ClusterKey *k,
                       struct Cluster *out, struct Error *e) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(tree, k->name);
    char *at = (char *)out + k->at;
    if (!item && k->fused && out->scores_kept)
        return 0;
    if (!item)
        return error_set(e, -EINVAL, E_CLUSTER_FILE, "--cluster %s: \"%s\" is missing: expected %s",
                         path, k->name, type_values[k->type]);
    if (!is_value_valid(k, item))
        return refuse_value(path, item, type_values[k->type], e);
    if (k->type == KEY_COUNT || k->type == KEY_BYTES)
        *(size_t *)at = (size_t)item->valuedouble;
    else
        *(double *)at = item->valuedouble;
    return 0;
}

static int read_name(const char *path, const cJSON *tree, struct Cluster *out, struct Error *e) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(tree, "name");
    if (!item)
        return error_set(e, -EINVAL, E_CLUSTER_FILE,
                         "--cluster %s: \"name\" is missing: expected a text", path);
    if (!cJSON_IsString(item) || !*item->valuestring)
        return refuse_value(path, item, "a text", e);
    snprintf(out->name, sizeof out->name, "%s", item->valuestring);
    return 0;
}

static int read_attention(const char *path, const cJSON *tree, struct Cluster *out,
                          struct Error *e) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(tree, "attention");
    const char *text = cJSON_IsString(item) ? item->valuestring : "";
    out->scores_kept = !strcmp(text, "scores kept");
    if (!item || out->scores_kept || !strcmp(text, "fused"))
        return 0;
    return refuse_value(path, item, "\"fused\" or \"scores kept\"", e);
}

// Checks that each source names a key, and is a text: where its number is from.
static int check_sources(const char *path, const cJSON *tree, struct Error *e) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(tree, "sources");
    if (item && !cJSON_IsObject(item))
        return refuse_value(path, item, "an object of keys and texts", e);
    for (const cJSON *source = item ? item->child : NULL; source; source = source->next)
        if (!key_named(source->string) || !cJSON_IsString(source))
            return refuse_value(path, source, "a text, of a key that the file may have", e);
    return 0;
}

static int read_tree(const char *path, const cJSON *tree, struct Cluster *out, struct Error *e) {
    int err = check_names(path, tree, e);
    if (!err)
        err = read_name(path, tree, out, e);
    if (!err)
        err = read_attention(path, tree, out, e);
    for (int i = 0; i < NKEY && !err; i++)
        err = read_number(path, tree, &keys[i], out, e);
    if (!err)
        err = check_sources(path, tree, e);
    if (!err && out->nodes * out->node_gpus > MOST_RANKS)
        err = error_set(
            e, -EINVAL, E_CLUSTER_FILE,
            "--cluster %s: %zu nodes of %zu GPUs are too many: expected at most %d GPUs in all",
            path, out->nodes, out->node_gpus, MOST_RANKS);
    return err;
}

int cluster_read(const char *path, struct cJSON *tree, struct Cluster *out, struct Error *e) {
    *out = (struct Cluster){.nodes = 0};
    int err = tree ? read_tree(path, tree, out, e) : -EINVAL;
    cJSON_Delete(tree);
    return err;
}
