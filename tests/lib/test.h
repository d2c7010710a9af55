// What a C test program is made of: TEST(a_promise) { ... }, one for each thing that it shows.
//
// The program runs them in the order in which they stand, with cmocka, and says in TAP how each
// went. It has no list of them and, as a rule, no main: that is tests/lib/test.c's.
#ifndef TESTS_LIB_TEST_H
#define TESTS_LIB_TEST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h wants the headers above it.
#include <cmocka.h>

struct Test {
    int line;
    struct CMUnitTest test;
    struct Test *next;
};
void test_add(struct Test *t);

#define TEST(shows)                                                                                \
    static void shows(void **state);                                                               \
    __attribute__((constructor)) static void announce_##shows(void) {                              \
        static struct Test t = {.line = __LINE__, .test = {.name = #shows, .test_func = shows}};   \
        test_add(&t);                                                                              \
    }                                                                                              \
    static void shows(__attribute__((unused)) void **state)

// What is called around each test of a program, and around all of them together; a program has
// each at most once, and what `before` puts into *state is what a test finds there.
struct Around {
    CMFixtureFunction before, after;
};
extern struct Around around_each, around_all;
#define AROUND_EACH(before, after) struct Around around_each = {before, after}
#define AROUND_ALL(before, after) struct Around around_all = {before, after}

// Runs all tests; how many failed. For a program that has a main of its own.
int run_all_tests(void);

// A folder on the disk that build/ is on, since NVMe wants a disk: AROUND_ALL(disk_open,
// disk_close).
extern char *disk_folder;
int disk_open(void **state);
int disk_close(void **state);

// --whole was given: some tests then try all that there is, which takes minutes.
extern bool whole;

#endif
