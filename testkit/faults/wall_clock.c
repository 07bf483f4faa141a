/* Moves the wall clock of one process, and of those it starts, while it runs: CLOCK_REALTIME and what derives from it,
   never CLOCK_MONOTONIC or CLOCK_BOOTTIME. The file that CHAOS_CLOCK names holds the offset: nanoseconds in 8 bytes, in
   the machine's order, mapped, so that a change counts at once.

   Debian's libfaketime (0.9.10) cannot do this: told to leave the monotonic clock alone, it breaks clock_nanosleep, and
   with it time.sleep of Python 3.11 and later (its issue 426). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int (*real_clock_gettime)(clockid_t, struct timespec *);
static const volatile int64_t *offset_ns;

__attribute__((constructor)) static void begin(void) {
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, 8, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) offset_ns = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    if (!real_clock_gettime) begin();
    int result = real_clock_gettime(clock, at);
    if (result == 0 && offset_ns && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t total_ns = at->tv_sec * 1000000000LL + at->tv_nsec + *offset_ns;
        at->tv_sec = total_ns / 1000000000LL;
        at->tv_nsec = total_ns % 1000000000LL;
    }
    return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    struct timespec now;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return result;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
