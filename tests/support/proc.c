/* SPDX-License-Identifier: Apache-2.0 */
#include "support/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What came out of one pipe. */
struct stream {
    int fd; /* -1: ended */
    char *text;
    size_t length;
    size_t capacity;
    size_t seen_off; /* lines before this were looked at by proc_wait_line() */
};

struct proc {
    pid_t pid;
    int in;
    struct stream out;
    struct stream err;
    bool is_reaped;
    int code;
    char name[64];
};

static void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void die(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    abort();
}

uint64_t proc_now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

const char *proc_program(const char *name)
{
    static char path[4096];
    const char *folder = getenv("KVX_TEST_PROGRAMS");

    if (folder == NULL)
        die("KVX_TEST_PROGRAMS must name the folder of the built programs");
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void pipe_open(int ends[2])
{
    if (pipe2(ends, O_CLOEXEC) != 0)
        die("pipe: %s", strerror(errno));
}

static void child_run(const char *const argv[], const char *const env[], int in, int out, int err)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGPIPE, SIG_DFL);
    for (size_t i = 0; env != NULL && env[i] != NULL; i++)
        (void)putenv((char *)(uintptr_t)env[i]);
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
        _exit(127);
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    dprintf(2, "%s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

proc *proc_start(const char *const argv[], const char *const env[])
{
    int in[2], out[2], err[2];
    proc *p = calloc(1, sizeof(*p));
    const char *slash = strrchr(argv[0], '/');

    if (p == NULL)
        die("out of memory");
    (void)snprintf(p->name, sizeof(p->name), "%s", slash != NULL ? slash + 1 : argv[0]);
    pipe_open(in);
    pipe_open(out);
    pipe_open(err);
    p->pid = fork();
    if (p->pid < 0)
        die("fork: %s", strerror(errno));
    if (p->pid == 0)
        child_run(argv, env, in[0], out[1], err[1]);
    close(in[0]);
    close(out[1]);
    close(err[1]);
    p->in = in[1];
    p->out.fd = out[0];
    p->err.fd = err[0];
    (void)fcntl(out[0], F_SETFL, O_NONBLOCK);
    (void)fcntl(err[0], F_SETFL, O_NONBLOCK);
    return p;
}

static void stream_end(struct stream *s)
{
    close(s->fd);
    s->fd = -1;
}

static void stream_grow(struct stream *s)
{
    if (s->capacity - s->length > 4096)
        return;
    s->capacity = s->capacity * 2 + 16384;
    s->text = realloc(s->text, s->capacity);
    if (s->text == NULL)
        die("out of memory");
    s->text[s->length] = '\0';
}

/* Takes in all that is there now. */
static void stream_read(struct stream *s)
{
    while (s->fd >= 0) {
        stream_grow(s);
        const ssize_t got = read(s->fd, s->text + s->length, s->capacity - s->length - 1);
        if (got > 0) {
            s->length += (size_t)got;
            s->text[s->length] = '\0';
        } else if (got == 0) {
            stream_end(s);
        } else if (errno != EINTR) {
            return;
        }
    }
}

static const char *stream_text(struct stream *s)
{
    stream_read(s);
    return s->text != NULL ? s->text : "";
}

/* Looks at whole lines (and at the rest, once the pipe has ended) not looked at before. */
static bool stream_find(struct stream *s, const char *text, char *line_out, size_t line_size)
{
    while (s->seen_off < s->length) {
        char *line = s->text + s->seen_off;
        char *end = strchr(line, '\n');
        if (end == NULL && s->fd >= 0)
            return false;
        const size_t length = end != NULL ? (size_t)(end - line) : strlen(line);
        s->seen_off += length + (end != NULL);
        if (memmem(line, length, text, strlen(text)) == NULL)
            continue;
        if (line_out != NULL)
            (void)snprintf(line_out, line_size, "%.*s", (int)length, line);
        return true;
    }
    return false;
}

/* Waits for output or the end of it. */
static void pipes_wait(proc *p, uint64_t until_ms)
{
    struct pollfd fds[] = { { .fd = p->out.fd, .events = POLLIN },
        { .fd = p->err.fd, .events = POLLIN } };
    const uint64_t now = proc_now_ms();

    (void)poll(fds, 2, until_ms > now ? (int)(until_ms - now) : 0);
    stream_read(&p->out);
    stream_read(&p->err);
}

static bool pipes_ended(const proc *p)
{
    return p->out.fd < 0 && p->err.fd < 0;
}

static void show(proc *p, const char *why, const char *what)
{
    fprintf(stderr, "%s (pid %d): %s%s\n--- its stdout\n%s--- its stderr\n%s---\n", p->name,
            (int)p->pid, why, what, stream_text(&p->out), stream_text(&p->err));
}

bool proc_wait_line(proc *p, const char *text, uint32_t timeout_ms, char *line_out, size_t line_size)
{
    const uint64_t until_ms = proc_now_ms() + timeout_ms;

    for (;;) {
        stream_read(&p->out);
        stream_read(&p->err);
        if (stream_find(&p->out, text, line_out, line_size))
            return true;
        if (stream_find(&p->err, text, line_out, line_size))
            return true;
        if (pipes_ended(p) || proc_now_ms() >= until_ms)
            break;
        pipes_wait(p, until_ms);
    }
    show(p, "no line with ", text);
    return false;
}

static bool reap(proc *p, int flags)
{
    int status = 0;

    if (p->is_reaped)
        return true;
    if (waitpid(p->pid, &status, flags) != p->pid)
        return false;
    p->is_reaped = true;
    p->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return true;
}

bool proc_is_running(proc *p)
{
    return !reap(p, WNOHANG);
}

bool proc_wait_exit(proc *p, uint32_t timeout_ms, int *code_out)
{
    const uint64_t until_ms = proc_now_ms() + timeout_ms;

    /* A grandchild may hold the pipes open, so the end is asked for from time to time. */
    while (proc_is_running(p)) {
        const uint64_t now = proc_now_ms();
        if (now >= until_ms) {
            show(p, "still runs", "");
            return false;
        }
        if (pipes_ended(p))
            (void)poll(NULL, 0, 2);
        else
            pipes_wait(p, now + 20 < until_ms ? now + 20 : until_ms);
    }
    stream_read(&p->out);
    stream_read(&p->err);
    *code_out = p->code;
    return true;
}

void proc_signal(proc *p, int signal)
{
    if (!p->is_reaped)
        (void)kill(p->pid, signal);
}

void proc_stop(proc *p)
{
    siginfo_t info;

    proc_signal(p, SIGSTOP);
    if (!p->is_reaped)
        (void)waitid(P_PID, (id_t)p->pid, &info, WSTOPPED | WEXITED | WNOWAIT);
}

void proc_continue(proc *p)
{
    proc_signal(p, SIGCONT);
}

bool proc_send(proc *p, const char *text)
{
    size_t length = strlen(text);
    void (*old)(int) = signal(SIGPIPE, SIG_IGN);

    while (length > 0) {
        const ssize_t written = write(p->in, text, length);
        if (written < 0 && errno != EINTR)
            break;
        if (written > 0) {
            text += written;
            length -= (size_t)written;
        }
    }
    (void)signal(SIGPIPE, old);
    return length == 0;
}

void proc_send_end(proc *p)
{
    if (p->in >= 0)
        close(p->in);
    p->in = -1;
}

const char *proc_output(proc *p)
{
    return stream_text(&p->out);
}

const char *proc_errors(proc *p)
{
    return stream_text(&p->err);
}

pid_t proc_pid(const proc *p)
{
    return p->pid;
}

void proc_end(proc **p)
{
    if (p == NULL || *p == NULL)
        return;
    proc_signal(*p, SIGKILL);
    (void)reap(*p, 0);
    proc_send_end(*p);
    if ((*p)->out.fd >= 0)
        stream_end(&(*p)->out);
    if ((*p)->err.fd >= 0)
        stream_end(&(*p)->err);
    free((*p)->out.text);
    free((*p)->err.text);
    free(*p);
    *p = NULL;
}
