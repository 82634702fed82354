/* Faults of disk and clock for the processes that load it (LD_PRELOAD), switched by a shared file.
 *
 * FAULT_SHIM_CONTROL: a file of four 64-bit numbers: mode (0 none, 1 full, 2 read-only, 3 slow),
 * microseconds of a slow write, seconds by which the wall clock is wrong, unused.
 * FAULT_SHIM_FOLDER: only files below it are concerned. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { NONE, FULL, READ_ONLY, SLOW };
static volatile int64_t *control;
static const char *folder;
static size_t folder_length;

__attribute__((constructor)) static void attach(void) {
    const char *path = getenv("FAULT_SHIM_CONTROL");
    folder = getenv("FAULT_SHIM_FOLDER");
    if (!path || !folder) return;
    folder_length = strlen(folder);
    int fd = (int)syscall(257 /* openat */, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return;
    void *page = mmap(NULL, 32, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (page != MAP_FAILED) control = page;
}

#define REAL(name) ({ static __typeof__(&name) real; if (!real) real = dlsym(RTLD_NEXT, #name); real; })

static int mode(void) { return control ? (int)control[0] : NONE; }
static int concerns_path(const char *path) {
    return path && folder && strncmp(path, folder, folder_length) == 0;
}
static int concerns(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return 0;
    path[n] = 0;
    return concerns_path(path);
}

/* 0: go on; else the errno to fail with. */
static int refuses_write(int fd, int grows) {
    int now = mode();
    if (now == NONE || !concerns(fd)) return 0;
    if (now == SLOW) { usleep((useconds_t)control[1]); return 0; }
    if (now == READ_ONLY) return EROFS;
    return grows ? ENOSPC : 0;
}
static int refuses_change(const char *path) { /* of a folder */
    return mode() == READ_ONLY && concerns_path(path) ? EROFS : 0;
}
static int refuses_open(const char *path, int flags) {
    int now = mode();
    if ((now != READ_ONLY && now != FULL) || !concerns_path(path)) return 0;
    int writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT);
    if (!writes) return 0;
    if (now == READ_ONLY) return EROFS;
    struct stat at;
    return (flags & O_CREAT) && stat(path, &at) ? ENOSPC : 0;
}
#define OR_FAIL(test) do { int refused = (test); if (refused) { errno = refused; return -1; } } while (0)
#define MODE_OF(flags) mode_t permissions = 0; if ((flags) & (O_CREAT | O_TMPFILE)) { \
    va_list rest; va_start(rest, flags); permissions = va_arg(rest, mode_t); va_end(rest); }

int open(const char *path, int flags, ...) {
    MODE_OF(flags) OR_FAIL(refuses_open(path, flags));
    return REAL(open)(path, flags, permissions);
}
int open64(const char *path, int flags, ...) {
    MODE_OF(flags) OR_FAIL(refuses_open(path, flags));
    return REAL(open64)(path, flags, permissions);
}
int openat(int at, const char *path, int flags, ...) {
    MODE_OF(flags) OR_FAIL(refuses_open(path, flags));
    return REAL(openat)(at, path, flags, permissions);
}
int openat64(int at, const char *path, int flags, ...) {
    MODE_OF(flags) OR_FAIL(refuses_open(path, flags));
    return REAL(openat64)(at, path, flags, permissions);
}
ssize_t write(int fd, const void *data, size_t n) {
    OR_FAIL(refuses_write(fd, 1));
    return REAL(write)(fd, data, n);
}
ssize_t writev(int fd, const struct iovec *parts, int n) {
    OR_FAIL(refuses_write(fd, 1));
    return REAL(writev)(fd, parts, n);
}
ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
    OR_FAIL(refuses_write(fd, 1));
    return REAL(pwrite)(fd, data, n, at);
}
ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) {
    OR_FAIL(refuses_write(fd, 1));
    return REAL(pwrite64)(fd, data, n, at);
}
int ftruncate(int fd, off_t n) { OR_FAIL(refuses_write(fd, 0)); return REAL(ftruncate)(fd, n); }
int ftruncate64(int fd, off64_t n) { OR_FAIL(refuses_write(fd, 0)); return REAL(ftruncate64)(fd, n); }
int fsync(int fd) { OR_FAIL(refuses_write(fd, 0)); return REAL(fsync)(fd); }
int fdatasync(int fd) { OR_FAIL(refuses_write(fd, 0)); return REAL(fdatasync)(fd); }
int mkdir(const char *path, mode_t m) { OR_FAIL(refuses_change(path)); return REAL(mkdir)(path, m); }
int unlink(const char *path) { OR_FAIL(refuses_change(path)); return REAL(unlink)(path); }
int rename(const char *from, const char *to) {
    OR_FAIL(refuses_change(to));
    return REAL(rename)(from, to);
}

static int64_t wrong_s(void) { return control ? control[2] : 0; }
int clock_gettime(clockid_t id, struct timespec *at) {
    int code = REAL(clock_gettime)(id, at);
    if (!code && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) at->tv_sec += wrong_s();
    return code;
}
int gettimeofday(struct timeval *at, void *zone) {
    int code = REAL(gettimeofday)(at, zone);
    if (!code) at->tv_sec += wrong_s();
    return code;
}
time_t time(time_t *at) {
    time_t now = REAL(time)(NULL) + (time_t)wrong_s();
    if (at) *at = now;
    return now;
}
