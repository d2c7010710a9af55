// What is kept of a machine's speed: measured once; measured again where it is in doubt, and the
// larger is kept; in doubt where others used the machine meanwhile, or training was faster.
#include "data/log/machine.h"
#include "data/file.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>

struct Fixture {
    char *folder, *path;
    double next; // what the next measurement finds
    int measured;
};

static int setup(void **state) {
    struct Fixture *f = base_alloc_zeroed(sizeof *f);
    f->folder = scratch_make();
    f->path = base_format("%s/machine.txt", f->folder);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct Fixture *f = *state;
    scratch_remove(f->folder);
    free(f->path);
    free(f);
    return 0;
}

static double measure(void *fixture) {
    struct Fixture *f = fixture;
    f->measured++;
    return f->next;
}

// The value of `name`, with `measured` measurements in all until then.
static void expect(struct Fixture *f, const char *name, double next, double want, int measured) {
    f->next = next;
    double got = machine_measured(f->folder, name, measure, f);
    if (got != want || f->measured != measured)
        fail_msg("%s: %g after %d measurements, wanted %g after %d", name, got, f->measured, want,
                 measured);
}

// The file, free() it; its lines end as they should.
static char *read_file(const struct Fixture *f) {
    char *text = NULL;
    size_t bytes;
    struct Error e;
    assert_ok(file_read(f->path, 1 << 20, &text, &bytes, &e), &e);
    assert_true(bytes > 0 && text[bytes - 1] == '\n');
    return text;
}

// Takes all doubts away, which a machine that is busy with other tests has put there.
static void trust(const struct Fixture *f) {
    char *command = base_format("sed -i 's/ again$//' '%s'", f->path);
    assert_int_equal(system(command), 0);
    free(command);
}

static size_t count_lines(const struct Fixture *f, const char *part) {
    char *text = read_file(f);
    size_t n = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        n += strstr(line, part) != NULL;
    free(text);
    return n;
}

TEST(a_speed_is_measured_once) {
    struct Fixture *f = *state;
    expect(f, "products", 100, 100, 1);
    expect(f, "copies", 7, 7, 2);
    trust(f);
    expect(f, "products", 200, 100, 2);
    expect(f, "copies", 9, 7, 2);
    expect(f, "prod", 5, 5, 3); // no name that only begins like another
    assert_int_equal(count_lines(f, "|"), 3);
}

TEST(what_is_in_doubt_is_measured_again) {
    struct Fixture *f = *state;
    machine_doubt(f->folder, "products"); // of nothing there is no doubt
    expect(f, "products", 100, 100, 1);
    expect(f, "copies", 7, 7, 2);
    expect(f, "disk", 8, 8, 3);
    trust(f);
    machine_doubt(f->folder, "copies");
    machine_doubt(f->folder, "copies");
    assert_int_equal(count_lines(f, " again"), 1);
    assert_int_equal(count_lines(f, "|"), 3);
    expect(f, "products", 1, 100, 3);
    expect(f, "disk", 1, 8, 3);
    expect(f, "copies", 6, 7, 4); // the larger
    trust(f);
    machine_doubt(f->folder, "copies");
    expect(f, "copies", 8, 8, 5);
    trust(f);
    expect(f, "copies", 9, 8, 5);
    assert_int_equal(count_lines(f, "|"), 3);
}

// A file that something else has damaged: a name twice, a last line that is torn.
TEST(a_damaged_file_is_mended) {
    struct Fixture *f = *state;
    expect(f, "products", 100, 100, 1);
    trust(f);
    char *command = base_format(
        "cd '%s' && sed -i 's/100/0/; p' machine.txt && printf 'copies' >>machine.txt", f->folder);
    assert_int_equal(system(command), 0);
    free(command);
    expect(f, "products", 50, 50, 2);
    trust(f);
    expect(f, "products", 60, 50, 2);
    assert_int_equal(count_lines(f, "products|"), 1);
    assert_int_equal(count_lines(f, "copies"), 1);
}

TEST(others_are_told_from_oneself) {
    struct CpuTimes from = {100, 1000, 5}, to;
    to = (struct CpuTimes){102, 1002, 7}; // two CPUs for two seconds, one of them ours
    assert_true(machine_share_of_others(&from, &to) == 0);
    to = (struct CpuTimes){103, 1001, 7};
    assert_true(fabs(machine_share_of_others(&from, &to) - 0.25) < 1e-12);
    to = (struct CpuTimes){104, 1000, 5};
    assert_true(machine_share_of_others(&from, &to) == 1);
    to = (struct CpuTimes){102, 1002, 7.1}; // clocks of different steps
    assert_true(machine_share_of_others(&from, &to) == 0);
    assert_true(machine_share_of_others(&from, &from) == 0);
    assert_true(machine_read_times(&from) && machine_read_times(&to));
    assert_true(from.busy > 0 && to.busy >= from.busy && to.idle >= from.idle);
    assert_true(to.own >= from.own && to.own < 1000);
}

static double wait_a_while(void *fixture) {
    usleep(400000);
    return measure(fixture);
}

// As many processes as there are CPUs, and a measurement beside them.
TEST(a_busy_machine_leaves_a_doubt) {
    struct Fixture *f = *state;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    pid_t *child = base_alloc((size_t)cpus * sizeof *child);
    for (long i = 0; i < cpus; i++) {
        child[i] = fork();
        assert_true(child[i] >= 0);
        for (volatile uint64_t n = 0; child[i] == 0; n++)
            ; // until it is killed
    }
    f->next = 100;
    assert_true(machine_measured(f->folder, "products", wait_a_while, f) == 100);
    for (long i = 0; i < cpus; i++) {
        kill(child[i], SIGKILL);
        waitpid(child[i], NULL, 0);
    }
    free(child);
    assert_int_equal(count_lines(f, "|100 again"), 1);
    expect(f, "products", 50, 100, 2);
}

AROUND_EACH(setup, teardown);
