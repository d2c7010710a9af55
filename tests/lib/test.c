// Runs the tests of a program, which have announced themselves before main.
#include "tests/lib/test.h"
#include "tests/lib/scratch.h"

bool whole;
char *disk_folder;
__attribute__((weak)) struct Around around_each, around_all;

static struct Test *first;
static size_t count;

void test_add(struct Test *t) {
    struct Test **at = &first;
    while (*at && (*at)->line < t->line)
        at = &(*at)->next;
    t->next = *at;
    *at = t;
    count++;
}

int disk_open(void **state) {
    (void)state;
    disk_folder = scratch_make_in("build");
    return 0;
}

int disk_close(void **state) {
    (void)state;
    scratch_remove(disk_folder);
    return 0;
}

int run_all_tests(void) {
    struct CMUnitTest *tests = base_alloc(count * sizeof *tests);
    size_t n = 0;
    for (const struct Test *t = first; t; t = t->next) {
        tests[n] = t->test;
        tests[n].setup_func = around_each.before;
        tests[n++].teardown_func = around_each.after;
    }
    int failed = _cmocka_run_group_tests("tests", tests, n, around_all.before, around_all.after);
    free(tests);
    return failed;
}

__attribute__((weak)) int main(int argc, char **argv) {
    whole = argc > 1 && strcmp(argv[1], "--whole") == 0;
    return run_all_tests();
}
