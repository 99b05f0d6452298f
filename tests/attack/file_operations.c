/* A library for LD_PRELOAD that sees every change which a process makes below one folder, whoever makes it: Python,
 * pyarrow and torch (C++) and safetensors (Rust) all reach their files through libc.
 *
 * `attack_begin(root, target, mode, log)` arms it. Operations below `root` are numbered from 1. At number `target`
 *   KILL  the process dies before the operation, as `kill -9` would end it;
 *   TORN  the process dies after the first half of a write;
 *   FULL  the disk is full: this and every later operation that needs space fails with ENOSPC.
 * Target 0 lets everything pass. With `log` >= 0 each operation is a line on that descriptor: its name, its path below
 * the root, the bytes of a write. Another program that the process starts is not seen: its pid is not the armed one.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { KILL, TORN, FULL };
enum { PASS, TEAR, REFUSE }; /* what a caller has to do */
static char root[4096];
static size_t root_length;
static atomic_long seen;
static long target, mode, log_to = -1;
static pid_t armed;

void attack_begin(const char *folder, long at, long how, long log) {
  snprintf(root, sizeof root, "%s", folder);
  root_length = strlen(root);
  atomic_store(&seen, 0);
  target = at, mode = how, log_to = log, armed = getpid();
}

static void die(void) {
  syscall(SYS_kill, getpid(), SIGKILL);
  for (;;) pause();
}

static int below(const char *path) {
  return !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

static int resolved(const char *link, char *out, size_t size) {
  ssize_t length = readlink(link, out, size - 1);
  if (length >= 0) out[length] = 0;
  return length >= 0;
}

/* Whether `path`, relative to the folder of descriptor `at`, lies below the root; `out` is its absolute name. A path
 * with `..` in its middle counts as one that does not: `rla` writes to none. */
static int named(int at, const char *path, char *out, size_t size) {
  char link[64], folder[4096];
  if (!path) return 0;
  if (path[0] == '/') snprintf(out, size, "%s", path);
  else {
    if (at == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
    else snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    if (!resolved(link, folder, sizeof folder)) return 0;
    snprintf(out, size, "%s/%s", folder, path);
  }
  return below(out) && !strstr(out, "/../");
}

/* Numbers one operation. `space`: whether a full disk refuses it. */
static int count(const char *name, const char *path, size_t bytes, int space) {
  long number = atomic_fetch_add(&seen, 1) + 1;
  if (log_to >= 0) {
    char line[8400];
    int length = snprintf(line, sizeof line, "%s\t%s\t%zu\n", name, path + root_length, bytes);
    syscall(SYS_write, (int)log_to, line, (size_t)length);
  }
  if (!target || number < target) return PASS;
  if (mode == FULL) {
    if (space) errno = ENOSPC;
    return space ? REFUSE : PASS;
  }
  if (number > target) return PASS;
  if (mode == TORN && bytes > 1) return TEAR;
  die();
  return PASS;
}

static int on_path(const char *name, int at, const char *path, int space) {
  char full[8300];
  if (!armed || armed != getpid() || !named(at, path, full, sizeof full)) return PASS;
  return count(name, full, 0, space);
}

static int on_file(const char *name, int file, size_t bytes) {
  char link[64], full[4096];
  if (!armed || armed != getpid() || file == log_to) return PASS;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  return resolved(link, full, sizeof full) && below(full) ? count(name, full, bytes, 1) : PASS;
}

/* Of two names the new one tells whether the operation is ours, or else the old one: what is moved out is gone. */
static int on_two(const char *name, int old_at, const char *old, int new_at, const char *new, int space) {
  char full[8300];
  if (!armed || armed != getpid()) return PASS;
  int ours = named(new_at, new, full, sizeof full) || named(old_at, old, full, sizeof full);
  return ours ? count(name, full, 0, space) : PASS;
}

#define REAL(result, name, ...) \
  static result (*real)(__VA_ARGS__); \
  if (!real) real = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)
#define CALL(result, name, declared, types, given, seen_as, failed) \
  result name declared { \
    REAL(result, name, types); \
    if ((seen_as) == REFUSE) return failed; \
    return real given; }
#define TYPES(...) __VA_ARGS__
#define WRITES(flags) (((flags) & O_ACCMODE) != O_RDONLY && ((flags) & (O_CREAT | O_TRUNC)))

#define OPEN(name, declared, types, at, given) \
  int name declared { \
    REAL(int, name, types, ...); \
    va_list rest; va_start(rest, flags); mode_t rights = va_arg(rest, mode_t); va_end(rest); \
    if (WRITES(flags) && on_path("open", at, path, 1) == REFUSE) return -1; \
    return real given; }
OPEN(open, (const char *path, int flags, ...), TYPES(const char *, int), AT_FDCWD, (path, flags, rights))
OPEN(open64, (const char *path, int flags, ...), TYPES(const char *, int), AT_FDCWD, (path, flags, rights))
OPEN(openat, (int at, const char *path, int flags, ...), TYPES(int, const char *, int), at, (at, path, flags, rights))
OPEN(openat64, (int at, const char *path, int flags, ...), TYPES(int, const char *, int), at, (at, path, flags, rights))

#define FOPEN(name) \
  CALL(FILE *, name, (const char *path, const char *how), TYPES(const char *, const char *), (path, how), \
       strpbrk(how, "wa+") ? on_path("open", AT_FDCWD, path, 1) : PASS, NULL)
FOPEN(fopen) FOPEN(fopen64)

ssize_t write(int file, const void *data, size_t size) {
  REAL(ssize_t, write, int, const void *, size_t);
  int verdict = on_file("write", file, size);
  if (verdict == TEAR) real(file, data, size / 2), die();
  return verdict == REFUSE ? -1 : real(file, data, size);
}

#define PWRITE(name) \
  ssize_t name(int file, const void *data, size_t size, off_t offset) { \
    REAL(ssize_t, name, int, const void *, size_t, off_t); \
    int verdict = on_file("write", file, size); \
    if (verdict == TEAR) real(file, data, size / 2, offset), die(); \
    return verdict == REFUSE ? -1 : real(file, data, size, offset); }
PWRITE(pwrite) PWRITE(pwrite64)

ssize_t writev(int file, const struct iovec *parts, int number) {
  REAL(ssize_t, writev, int, const struct iovec *, int);
  size_t size = 0;
  for (int i = 0; i < number; i++) size += parts[i].iov_len;
  int verdict = on_file("write", file, size);
  if (verdict == TEAR) real(file, parts, (number + 1) / 2), die();
  return verdict == REFUSE ? -1 : real(file, parts, number);
}

#define SENDFILE(name) \
  CALL(ssize_t, name, (int out, int in, off_t *offset, size_t size), TYPES(int, int, off_t *, size_t), \
       (out, in, offset, size), on_file("copy", out, 0), -1)
SENDFILE(sendfile) SENDFILE(sendfile64)

CALL(ssize_t, copy_file_range, (int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags),
     TYPES(int, off64_t *, int, off64_t *, size_t, unsigned), (in, from, out, to, size, flags),
     on_file("copy", out, 0), -1)

/* A file that is written through memory has its full length from here on, and holds zeros. */
#define MMAP(name) \
  CALL(void *, name, (void *where, size_t size, int rights, int flags, int file, off_t offset), \
       TYPES(void *, size_t, int, int, int, off_t), (where, size, rights, flags, file, offset), \
       file >= 0 && (flags & MAP_SHARED) && (rights & PROT_WRITE) ? on_file("map", file, 0) : PASS, MAP_FAILED)
MMAP(mmap) MMAP(mmap64)

#define TRUNCATE(name) \
  CALL(int, name, (int file, off_t size), TYPES(int, off_t), (file, size), on_file("truncate", file, 0), -1)
TRUNCATE(ftruncate) TRUNCATE(ftruncate64)

#define GONE(name, shown) \
  CALL(int, name, (const char *path), TYPES(const char *), (path), on_path(shown, AT_FDCWD, path, 0), -1)
GONE(unlink, "unlink") GONE(rmdir, "rmdir") GONE(remove, "unlink")
CALL(int, unlinkat, (int at, const char *path, int flags), TYPES(int, const char *, int), (at, path, flags),
     on_path(flags & AT_REMOVEDIR ? "rmdir" : "unlink", at, path, 0), -1)

CALL(int, mkdir, (const char *path, mode_t rights), TYPES(const char *, mode_t), (path, rights),
     on_path("mkdir", AT_FDCWD, path, 1), -1)
CALL(int, mkdirat, (int at, const char *path, mode_t rights), TYPES(int, const char *, mode_t), (at, path, rights),
     on_path("mkdir", at, path, 1), -1)
CALL(int, symlink, (const char *to, const char *path), TYPES(const char *, const char *), (to, path),
     on_path("symlink", AT_FDCWD, path, 1), -1)

CALL(int, rename, (const char *old, const char *new), TYPES(const char *, const char *), (old, new),
     on_two("rename", AT_FDCWD, old, AT_FDCWD, new, 0), -1)
CALL(int, renameat, (int from, const char *old, int to, const char *new), TYPES(int, const char *, int, const char *),
     (from, old, to, new), on_two("rename", from, old, to, new, 0), -1)
CALL(int, renameat2, (int from, const char *old, int to, const char *new, unsigned flags),
     TYPES(int, const char *, int, const char *, unsigned), (from, old, to, new, flags),
     on_two("rename", from, old, to, new, 0), -1)
CALL(int, link, (const char *old, const char *new), TYPES(const char *, const char *), (old, new),
     on_two("link", AT_FDCWD, old, AT_FDCWD, new, 1), -1)
CALL(int, linkat, (int from, const char *old, int to, const char *new, int flags),
     TYPES(int, const char *, int, const char *, int), (from, old, to, new, flags),
     on_two("link", from, old, to, new, 1), -1)

/* Nothing is waited for: what a process has written survives its death without reaching the disk. */
int fsync(int file) { return (void)file, 0; }
int fdatasync(int file) { return (void)file, 0; }
