/* SPDX-License-Identifier: Apache-2.0 */
#include "pair/host.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t stop_signal;

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    if (clock_gettime(clock, &now) != 0)
        return 0;
    return (uint64_t)now.tv_sec * HOST_NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

uint64_t host_now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t host_process_cpu_ns(void)
{
    return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

uint64_t host_thread_cpu_ns(void)
{
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static bool read_number(const char *path, uint64_t *number_out)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    const bool is_read = fscanf(file, "%" SCNu64, number_out) == 1;
    (void)fclose(file);
    return is_read;
}

static uint64_t system_available_bytes(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    uint64_t kib = UINT64_MAX / 1024;

    if (file == NULL)
        return UINT64_MAX;
    while (fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
            break;
    (void)fclose(file);
    return kib * 1024;
}

/* File pages that the kernel drops when memory is short. */
static uint64_t group_reclaimable_bytes(void)
{
    FILE *file = fopen("/sys/fs/cgroup/memory.stat", "re");
    char line[128];
    uint64_t bytes = 0;
    uint64_t sum = 0;

    if (file == NULL)
        return 0;
    while (fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "inactive_file %" SCNu64, &bytes) == 1 ||
                sscanf(line, "active_file %" SCNu64, &bytes) == 1)
            sum += bytes;
    (void)fclose(file);
    return sum;
}

uint64_t host_available_bytes(void)
{
    const uint64_t available = system_available_bytes();
    uint64_t limit = 0;
    uint64_t used = 0;

    if (!read_number("/sys/fs/cgroup/memory.max", &limit) ||
            !read_number("/sys/fs/cgroup/memory.current", &used))
        return available;
    const uint64_t reclaimable = group_reclaimable_bytes();
    used -= reclaimable < used ? reclaimable : used;
    const uint64_t left = limit > used ? limit - used : 0;
    return left < available ? left : available;
}

void host_keep_streams(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        (void)close(fd);
}

static void note_signal(int signal)
{
    stop_signal = signal;
}

void host_catch_signals(void)
{
    struct sigaction action = { .sa_flags = (int)SA_RESETHAND };
    action.sa_handler = note_signal;
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

int host_stop_signal(void)
{
    return stop_signal;
}
