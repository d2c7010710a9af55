// What transformers gives for chats, out of tests/fixtures/chat (scripts/gen/chat_fixtures.py), for
// tests that are linked with the toy tokenizer.
#ifndef TESTS_LIB_CHAT_FIXTURE_H
#define TESTS_LIB_CHAT_FIXTURE_H
#include "data/chat/template.h"
#include "tests/lib/scratch.h"
#include "tests/lib/toy_tokenizer.h"

enum { CONVERSATIONS = 500 };
#define FIXTURES "tests/fixtures/chat/"

// ---- what transformers gives --------------------------------------------------------------------

struct Expected {
    char form[32];
    struct Toy toy;
    char *whole[CONVERSATIONS]; // ids, where * behind one says that it counts
    bool taken[CONVERSATIONS], asks[CONVERSATIONS];
    uint32_t hash[CONVERSATIONS], asked[CONVERSATIONS];
};

struct Fixture {
    struct Expected form[32];
    size_t forms;
    struct Line conversation[CONVERSATIONS];
    char *line[CONVERSATIONS], *folder;
};

static inline FILE *open_fixture(const char *name) {
    FILE *f = fopen(name, "r");
    if (!f)
        fail_msg("%s is not there", name);
    return f;
}

static inline void read_merges(struct Toy *toy) {
    FILE *f = open_fixture(FIXTURES "merges.txt");
    while (fscanf(f, "%d %d", &toy->left[toy->merges], &toy->right[toy->merges]) == 2)
        toy->merges++;
    fclose(f);
    assert_int_equal(toy->merges, 344);
}

static inline void read_conversations(struct Fixture *f) {
    FILE *file = open_fixture(FIXTURES "conversations.jsonl");
    struct Error e;
    for (size_t i = 0; i < CONVERSATIONS; i++) {
        size_t room = 0;
        ssize_t n = getline(&f->line[i], &room, file);
        assert_true(n > 1);
        if (line_read(&f->conversation[i], NULL, f->line[i], (size_t)n - 1, &e))
            fail_msg("conversation %zu: %s", i, e.text);
    }
    fclose(file);
}

static inline void read_expected_line(struct Fixture *f, const struct Toy *merges, char *line) {
    struct Expected *x = f->forms ? &f->form[f->forms - 1] : NULL;
    char word[16], text[32];
    int at = 0, id;
    size_t i;
    assert_int_equal(sscanf(line, "%15s %n", word, &at), 1);
    line += at;
    if (!strcmp(word, "form")) {
        x = &f->form[f->forms++];
        x->toy = *merges;
        assert_int_equal(sscanf(line, "%31s", x->form), 1);
    } else if (!strcmp(word, "control")) {
        assert_int_equal(sscanf(line, "%d %31s", &id, text), 2);
        x->toy.control[x->toy.controls].id = id;
        strcpy(x->toy.control[x->toy.controls++].text, text);
    } else if (!strcmp(word, "begin")) {
        x->toy.begin = atoi(line);
    } else if (!strcmp(word, "end")) {
        x->toy.end = atoi(line);
    } else {
        i = strtoul(line, &line, 10);
        line[strcspn(line, "\n")] = 0;
        assert_true(i < CONVERSATIONS);
        if (!strcmp(word, "whole"))
            x->whole[i] = base_format("%s", line + 1);
        x->taken[i] |= !strcmp(word, "all") && line[1] != '-';
        x->asks[i] |= !strcmp(word, "asked");
        if (!strcmp(word, "all"))
            x->hash[i] = (uint32_t)strtoul(line, NULL, 16);
        if (!strcmp(word, "asked"))
            x->asked[i] = (uint32_t)strtoul(line, NULL, 16);
    }
}

static inline int chat_set_up(void **state) {
    struct Fixture *f = base_alloc_zeroed(sizeof *f);
    struct Toy *merges = base_alloc_zeroed(sizeof *merges);
    char *line = NULL;
    size_t room = 0;
    read_merges(merges);
    read_conversations(f);
    FILE *file = open_fixture(FIXTURES "expected.txt");
    while (getline(&line, &room, file) > 1)
        read_expected_line(f, merges, line);
    fclose(file);
    free(line);
    free(merges);
    f->folder = scratch_make();
    *state = f;
    return 0;
}

static inline int chat_tear_down(void **state) {
    struct Fixture *f = *state;
    for (size_t i = 0; i < CONVERSATIONS; i++) {
        line_free(&f->conversation[i]);
        free(f->line[i]);
        for (size_t k = 0; k < f->forms; k++)
            free(f->form[k].whole[i]);
    }
    scratch_remove(f->folder);
    free(f);
    return 0;
}

static inline struct Expected *chat_form(struct Fixture *f, const char *name) {
    for (size_t i = 0; i < f->forms; i++)
        if (!strcmp(f->form[i].form, name))
            return &f->form[i];
    fail_msg("%s is not in the fixtures", name);
    return NULL;
}

#endif
