// The families, the checks of a model's shape, and the angles of rotary embedding. See config.h.
#include "model/config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { VOCAB_MULTIPLE = 128, VOCAB_PART_MULTIPLE = 64, MAX_HEAD_SIZE = 256 };
static const size_t max_side = (size_t)1 << 24; // any one dimension; products stay far below 2^63

// Radford et al. 2019; Touvron et al. 2023, Grattafiori et al. 2024; Jiang et al. 2023; Qwen team
// 2024, 2025.
const struct Family families[NFAMILY] = {
    {"gpt2", NORM_LAYER, POSITION_LEARNED, MLP_GELU, .bias = true, .qkv_bias = true},
    {"llama", NORM_RMS, POSITION_ROTARY, MLP_SWIGLU, .bias = false},
    {"mistral", NORM_RMS, POSITION_ROTARY, MLP_SWIGLU, .bias = false},
    {"qwen2", NORM_RMS, POSITION_ROTARY, MLP_SWIGLU, .qkv_bias = true},
    {"qwen3", NORM_RMS, POSITION_ROTARY, MLP_SWIGLU, .qk_norm = true},
};

const char *recompute_name(enum Recompute level) {
    static const char *const names[NRECOMPUTE] = {"none", "gelu", "attention", "mlp", "block"};
    return names[level];
}

// ---- the checks ----

static int check_side(const char *flag, size_t value, size_t most, struct Error *e) {
    if (value >= 1 && value <= most)
        return 0;
    return error_set(e, -EINVAL, E_SHAPE_RANGE, "%s %zu: expected 1 to %zu", flag, value, most);
}

static int check_heads(const struct ModelConfig *c, struct Error *e) {
    size_t divisor = c->kv_heads;
    while (c->heads % divisor)
        divisor--;
    if (divisor != c->kv_heads)
        return error_set(e, -EINVAL, E_HEADS,
                         "--kv-heads %zu: expected a divisor of --heads %zu, for example %zu",
                         c->kv_heads, c->heads, divisor);
    if (c->head_size > MAX_HEAD_SIZE && c->head_size * c->heads != c->channels)
        return check_side("--head-size", c->head_size, MAX_HEAD_SIZE, e);
    if (c->head_size > MAX_HEAD_SIZE)
        return error_set(e, -EINVAL, E_HEAD_SIZE,
                         "--heads %zu: each head has %zu channels, but the kernels support at most "
                         "%d; raise --heads or lower --channels",
                         c->heads, c->head_size, MAX_HEAD_SIZE);
    if (c->family->position == POSITION_ROTARY && c->head_size % 2)
        return error_set(
            e, -EINVAL, E_HEAD_SIZE,
            "--head-size %zu: rotary embedding needs an even size; expected an even number",
            c->head_size);
    return 0;
}

static int check_positions(const struct ModelConfig *c, struct Error *e) {
    if (c->positions >= c->seq_len || c->family->position != POSITION_LEARNED)
        return check_side("--positions", c->positions, max_side, e);
    return error_set(e, -EINVAL, E_SEQ_LEN, "--seq-len %zu: expected at most --positions %zu",
                     c->seq_len, c->positions);
}

static int check_rope(const struct ModelConfig *c, struct Error *e) {
    if (c->rope.scaling != ROPE_YARN || c->rope.theta > 1)
        return 0;
    return error_set(e, -EINVAL, E_ROPE_SCALING,
                     "--rope-theta %.9g: yarn scaling needs a larger theta; expected more than 1",
                     c->rope.theta);
}

static void set_if_zero(size_t *value, size_t usual) {
    *value = *value ? *value : usual;
}

// Fills in the sizes that follow from others. Those it divides by are not 0.
static int derive(struct ModelConfig *c, struct Error *e) {
    c->family = &families[c->kind];
    bool even = c->family->position == POSITION_ROTARY; // as check_heads wants a head
    if (!c->head_size && c->channels % (c->heads << even))
        return error_set(e, -EINVAL, E_HEADS,
                         "--channels %zu: expected a multiple of %s--heads %zu, for example %zu",
                         c->channels, even ? "twice " : "", c->heads,
                         round_up(c->channels, c->heads << even));
    set_if_zero(&c->kv_heads, c->heads);
    set_if_zero(&c->head_size, c->channels / c->heads);
    set_if_zero(&c->ffn, 4 * c->channels);
    set_if_zero(&c->positions, c->seq_len);
    c->norm_eps = c->norm_eps > 0 ? c->norm_eps : 1e-5;
    c->rope.theta = c->rope.theta > 0 ? c->rope.theta : 10000;
    c->vocab_padded = round_up(c->vocab, VOCAB_MULTIPLE);
    return 0;
}

// Computes the share of causal scores that a pattern leaves, block by block: hence the limit.
static int finish_sparse(struct ModelConfig *c, struct Error *e) {
    c->sparse_share = 1;
    if (c->sparse.mode == SPARSE_DENSE)
        return 0;
    if (c->seq_len > SPARSE_MOST_TOKENS)
        return error_set(e, -EINVAL, E_SEQ_LEN,
                         "--seq-len %zu: expected at most %d with --sparse-attention", c->seq_len,
                         SPARSE_MOST_TOKENS);
    size_t window = c->window < c->seq_len ? c->window : 0;
    c->sparse_share = sparse_share(&c->sparse, 0, c->heads, c->seq_len, window);
    return 0;
}

int model_config_finish(struct ModelConfig *c, struct Error *e) {
    const struct {
        const char *flag;
        size_t value, most;
    } sides[] = {{"--layers", c->layers, MAX_LAYERS},
                 {"--heads", c->heads, max_side},
                 {"--channels", c->channels, max_side},
                 {"--seq-len", c->seq_len, max_side},
                 {"--vocab", c->vocab, max_side}};
    int err = 0;
    for (size_t i = 0; i < sizeof sides / sizeof sides[0] && !err; i++)
        err = check_side(sides[i].flag, sides[i].value, sides[i].most, e);
    if (!err)
        err = derive(c, e);
    if (!err)
        err = check_side("--ffn", c->ffn, max_side, e);
    if (!err)
        err = check_heads(c, e);
    if (!err)
        err = check_positions(c, e);
    if (!err)
        err = check_rope(c, e);
    return err ? err : finish_sparse(c, e);
}

// ---- parts of a model ----

int model_first_trained(const struct ModelConfig *whole) {
    int u = 0;
    while (u <= (int)whole->layers && model_unit_is_frozen(whole, u) &&
           !model_unit_has_adapter(whole, u))
        u++;
    return u;
}

struct ModelConfig model_config_part(const struct ModelConfig *whole, size_t tp_rank,
                                     size_t tp_size) {
    struct ModelConfig c = *whole;
    if (tp_size == 1)
        return c;
    size_t rows = round_up(ceil_div(whole->vocab, tp_size), VOCAB_PART_MULTIPLE);
    c.heads /= tp_size;
    c.first_head = tp_rank * c.heads;
    c.kv_heads /= tp_size;
    c.ffn /= tp_size;
    c.vocab_padded = rows;
    c.vocab = size_min(rows, whole->vocab - size_min(whole->vocab, tp_rank * rows));
    return c;
}

static bool divides(const struct ModelConfig *c, size_t tp_size) {
    return !(c->heads % tp_size) && !(c->kv_heads % tp_size) && !(c->ffn % tp_size);
}

// Lists the first few numbers of TP ranks that divide the model, for an error line.
static void list_divisors(const struct ModelConfig *c, char *text, size_t room) {
    int used = 0;
    for (size_t i = 1; i <= c->kv_heads && used >= 0 && (size_t)used + 24 < room; i++)
        if (divides(c, i))
            used += snprintf(text + used, room - (size_t)used, "%s%zu", used ? ", " : "", i);
}

int model_config_check_parts(const struct ModelConfig *c, size_t tp_size, struct Error *e) {
    char right[128] = "";
    if (tp_size && divides(c, tp_size))
        return 0;
    list_divisors(c, right, sizeof right);
    return error_set(e, -EINVAL, E_TP_SHAPE,
                     "--tp %zu: expected a common divisor of --heads %zu, --kv-heads %zu and --ffn "
                     "%zu, one of %s",
                     tp_size, c->heads, c->kv_heads, c->ffn, right);
}

// ---- rotary embedding ----

// Returns the number of characters read; 0: not such a text. Defaults are the paper's: 32 turns and
// 1 (section 3.2), and the factor of cosines and sines (equation 22: the square root of 1/t).
static int scan_yarn(struct Rope *r, const char *text) {
    static const char exact[] = ":exact";
    int end = 0, more = 0;
    if (sscanf(text, "yarn:%lf:%zu%n", &r->factor, &r->original, &end) != 2)
        return 0;
    r->scaling = ROPE_YARN;
    r->fast = 32;
    r->slow = 1;
    r->attention = r->factor > 1 ? 0.1 * log(r->factor) + 1 : 1;
    if (sscanf(text + end, ":%lf:%lf:%lf%n", &r->fast, &r->slow, &r->attention, &more) == 3)
        end += more;
    r->exact = more && strcmp(text + end, exact) == 0;
    return r->exact ? end + (int)strlen(exact) : end;
}

// True if the numbers are valid for this kind of scaling.
static bool good_rope(const struct Rope *r) {
    bool good_length = r->original >= 1 && r->original <= max_side;
    if (r->scaling == ROPE_DEFAULT)
        return true;
    if (!(r->factor >= 1 && r->factor <= 1e6))
        return false;
    if (r->scaling == ROPE_LLAMA3)
        return r->low > 0 && r->high > r->low && r->high <= 1e6 && good_length;
    return r->scaling == ROPE_LINEAR || (r->slow > 0 && r->fast >= r->slow && r->fast <= 1e6 &&
                                         r->attention > 0 && r->attention <= 1e6 && good_length);
}

int model_rope_scaling(struct Rope *rope, const char *text, struct Error *e) {
    struct Rope r = {.theta = rope->theta};
    int end = 0;
    if (strcmp(text, "none") == 0)
        end = (int)strlen(text);
    else if (sscanf(text, "linear:%lf%n", &r.factor, &end) == 1)
        r.scaling = ROPE_LINEAR;
    else if (sscanf(text, "llama3:%lf:%lf:%lf:%zu%n", &r.factor, &r.low, &r.high, &r.original,
                    &end) == 4)
        r.scaling = ROPE_LLAMA3;
    else
        end = scan_yarn(&r, text);
    if (!end || text[end] || !good_rope(&r))
        return error_set(e, -EINVAL, E_ROPE_SCALING,
                         "--rope-scaling %s: expected none, linear:FACTOR with 1 <= FACTOR <= 1e6, "
                         "llama3:FACTOR:LOW:HIGH:ORIGINAL, also with 0 < LOW < HIGH <= 1e6, for "
                         "example llama3:8:1:4:8192, or yarn:FACTOR:ORIGINAL, for example "
                         "yarn:4:32768",
                         text);
    *rope = r;
    return 0;
}

// Returns the pair, as a fraction, that turns `times` times within the original training length.
static double pair_that_turns(const struct ModelConfig *c, double times) {
    double wavelength = (double)c->rope.original / (times * 2 * M_PI);
    return (double)c->head_size * log(wavelength) / (2 * log(c->rope.theta));
}

// Returns the frequency of pair i by YaRN, section 3.2: pairs up to `first` keep theirs, 1 / power;
// from `last` on it is divided by the factor; between the two it goes linearly from one value to
// the other. Computed in fp32, operation by operation as in transformers.
static float yarn_frequency(const struct ModelConfig *c, size_t i, float power) {
    const struct Rope *r = &c->rope;
    double first = pair_that_turns(c, r->fast), last = pair_that_turns(c, r->slow);
    first = fmax(r->exact ? first : floor(first), 0);
    last = fmin(r->exact ? last : ceil(last), (double)c->head_size - 1);
    last += first == last ? 0.001 : 0;
    float ramp = ((float)i - (float)first) / (float)(last - first);
    float kept = 1 - fminf(fmaxf(ramp, 0), 1);
    return 1 / ((float)r->factor * power) * (1 - kept) + 1 / power * kept;
}

// Llama 3.1: low frequencies are divided by the factor, high ones stay, and those between are a mix
// of both. Computed in fp32, operation by operation as in transformers.
static float scaled_frequency(const struct Rope *r, float frequency) {
    float wavelength = 2 * (float)M_PI / frequency, length = (float)r->original;
    float factor = (float)r->factor, low = (float)r->low, high = (float)r->high;
    if (r->scaling == ROPE_DEFAULT)
        return frequency;
    if (r->scaling == ROPE_LINEAR)
        return frequency / factor;
    if (wavelength < length / high)
        return frequency;
    if (wavelength > length / low)
        return frequency / factor;
    float smooth = (length / wavelength - low) / (high - low);
    return (1 - smooth) * frequency / factor + smooth * frequency;
}

float model_rope_frequency(const struct ModelConfig *c, size_t i) {
    float exponent = (float)(2 * i) / (float)c->head_size;
    float power = powf((float)c->rope.theta, exponent);
    return c->rope.scaling == ROPE_YARN ? yarn_frequency(c, i, power)
                                        : scaled_frequency(&c->rope, 1.0f / power);
}

void model_rope_table(const struct ModelConfig *c, size_t t, float *table) {
    size_t half = c->head_size / 2;
    float scale = c->rope.scaling == ROPE_YARN ? (float)c->rope.attention : 1;
    for (size_t i = 0; i < half; i++) {
        float frequency = model_rope_frequency(c, i);
        for (size_t position = 0; position < t; position++) {
            double angle = (double)((float)position * frequency);
            table[2 * (position * half + i)] = (float)cos(angle) * scale;
            table[2 * (position * half + i) + 1] = (float)sin(angle) * scale;
        }
    }
}
