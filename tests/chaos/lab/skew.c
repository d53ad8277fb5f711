// Moves the wall clock of a process and of nothing else: LD_PRELOAD this, with SKEW_FILE naming a file whose
// first 8 bytes are the offset in seconds (a native double). The file is mapped, so a write takes effect at once.
// Monotonic clocks and sleeps stay true, as on a machine whose clock is set wrong.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const double zero;
static volatile const double *offset_s = &zero;

__attribute__((constructor)) static void map_offset(void) {
  const char *path = getenv("SKEW_FILE");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *page = mmap(0, sizeof(double), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (page != MAP_FAILED) offset_s = page;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
  int failed = syscall(SYS_clock_gettime, clock, at);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    long long ns = at->tv_sec * 1000000000LL + at->tv_nsec + (long long)(*offset_s * 1e9);
    at->tv_sec = ns / 1000000000LL;
    at->tv_nsec = ns % 1000000000LL;
  }
  return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  struct timespec now;
  int failed = clock_gettime(CLOCK_REALTIME, &now);
  (void)zone;
  if (!failed) {
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
  }
  return failed;
}

time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}
