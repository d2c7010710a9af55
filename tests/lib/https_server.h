// A server of https on 127.0.0.1: the command `openssl`, which comes with ca-certificates. Its
// certificate nobody has signed. It serves the files of a folder, each of which is a whole answer.
#ifndef TESTS_LIB_HTTPS_SERVER_H
#define TESTS_LIB_HTTPS_SERVER_H
#include "tests/lib/scratch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

struct HttpsServer {
    char *folder;
    pid_t child;
    int port; // 0: none could be started
};

static inline void https_child(const char *folder, int said) {
    int nothing = open("/dev/null", O_RDWR);
    dup2(nothing, STDIN_FILENO);
    dup2(said, STDOUT_FILENO);
    dup2(nothing, STDERR_FILENO);
    if (chdir(folder) ||
        system("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key "
               "-out cert -subj /CN=127.0.0.1 -days 2 >/dev/null 2>&1"))
        _exit(1);
    alarm(60); // whatever becomes of the test
    execlp("openssl", "openssl", "s_server", "-accept", "127.0.0.1:0", "-key", "key", "-cert",
           "cert", "-HTTP", (char *)NULL);
    _exit(1);
}

static inline void https_start(struct HttpsServer *s) {
    int pipes[2];
    char line[256];
    s->folder = scratch_make();
    s->port = 0;
    assert_int_equal(pipe(pipes), 0);
    s->child = fork();
    assert_true(s->child >= 0);
    if (s->child == 0)
        https_child(s->folder, pipes[1]);
    close(pipes[1]);
    FILE *said = fdopen(pipes[0], "r"); // until the server says where it listens, or has ended
    while (!s->port && fgets(line, sizeof line, said))
        if (strncmp(line, "ACCEPT ", 7) == 0 && strrchr(line, ':'))
            s->port = atoi(strrchr(line, ':') + 1);
    fclose(said);
}

static inline void https_stop(struct HttpsServer *s) {
    int status;
    kill(s->child, SIGTERM);
    waitpid(s->child, &status, 0);
    scratch_remove(s->folder);
}

#endif
