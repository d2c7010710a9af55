// Configurations that public projects ship train as they are, or are refused by what the list of
// them says (tests/fixtures/deepspeed/public.txt, by scripts/gen/deepspeed_public.py). Each is read
// as ./train reads it, and its flags are resolved as for a plan. Runs from the repository's root.
#include "tests/lib/deepspeed_line.h"
#include "tests/lib/test.h"

// Whether `outer` is the path `inner`, or that of an object around it.
static bool is_around(const char *outer, const char *inner) {
    size_t n = strlen(outer);
    return !n || (strncmp(outer, inner, n) == 0 && (!inner[n] || inner[n] == '.'));
}

static void append(char **text, const char *more) {
    char *longer = base_format("%s%s", *text, more);
    free(*text);
    *text = longer;
}

// Leaves objects until one is around `path`. `open` is the path of the innermost that is open.
static void leave(char **json, char *open, const char *path) {
    while (!is_around(open, path)) {
        char *dot = strrchr(open, '.');
        *(dot ? dot : open) = 0;
        append(json, "}");
    }
}

// Adds a key by its path, in the order of a file.
static void add_key(char **json, char *open, const char *path, const char *value) {
    const char *last = strrchr(path, '.');
    char *parent = base_format("%.*s", last ? (int)(last - path) : 0, path);
    leave(json, open, parent);
    while (strcmp(open, parent) != 0) {
        const char *rest = parent + strlen(open) + (*open != 0);
        int n = (int)strcspn(rest, ".");
        char *begin =
            base_format("%s\"%.*s\":{", (*json)[strlen(*json) - 1] == '{' ? "" : ",", n, rest);
        append(json, begin);
        strncpy(open, parent, (size_t)(rest + n - parent));
        open[rest + n - parent] = 0;
        free(begin);
    }
    char *member = base_format("%s\"%s\":%s", (*json)[strlen(*json) - 1] == '{' ? "" : ",",
                               last ? last + 1 : path, value);
    append(json, member);
    free(member);
    free(parent);
}

// "VERDICT RANKS PROJECT PATH[: PART]", and its text.
static void look_at(char *head, const char *json) {
    char *part = strstr(head, ": "), *rest = head;
    const char *verdict = strsep(&rest, " "), *ranks = strsep(&rest, " ");
    char *line = base_format("--ranks %s --model gpt2", ranks);
    struct Read r;
    int err = read_text(&r, json, line);
    const struct SettingsUse use = {.said = flags_said(&r.flags),
                                    .plan = true,
                                    .cores = 1,
                                    .chosen = {.dtype = {F32, BF16}, .from = "chosen"}};
    struct Settings resolved = r.line.train;
    if (!err)
        err = settings_resolve(&resolved, &r.line.train, &use, &r.e);
    if (strcmp(verdict, "trains") == 0 && err)
        fail_msg("%s: %s", rest, r.e.text);
    if (strcmp(verdict, "refused") == 0) {
        assert_int_equal(err, -EINVAL);
        assert_non_null(part);
        expect_part(&r.e, part + 2);
    }
    close_line(&r);
    free(line);
}

TEST(test_public_configurations_train_as_they_are) {
    FILE *file = fopen(FOLDER "public.txt", "r");
    assert_non_null(file);
    char text[1024], head[1024] = "", open[256] = "";
    char *json = base_format("{");
    int trains = 0, refused = 0;
    bool more = true;
    while (more) {
        more = fgets(text, sizeof text, file) != NULL;
        text[more ? strcspn(text, "\n") : 0] = 0;
        if (*text == '#')
            continue;
        if (*text == ' ') {
            char *value = text + 2, *path = strsep(&value, " ");
            add_key(&json, open, path, value);
            continue;
        }
        if (*head) {
            leave(&json, open, "-");
            append(&json, "}");
            trains += *head == 't';
            refused += *head == 'r';
            look_at(head, json);
        }
        free(json);
        json = base_format("{");
        *open = 0;
        snprintf(head, sizeof head, "%s", text);
    }
    fclose(file);
    free(json);
    print_message("%d train, %d are refused\n", trains, refused);
    assert_true(trains >= 60 && trains >= 0.9 * (trains + refused));
}
