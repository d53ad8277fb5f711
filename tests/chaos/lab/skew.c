// Moves the wall clock of a process and of nothing else: LD_PRELOAD this, with SKEW_FILE naming a file whose
// first 8 bytes are the offset in seconds (a native double). The file is mapped, so a write takes effect at once.
// Monotonic clocks and sleeps stay true, as on a machine whose clock is set wrong. So do waits until a moment of
// the wall clock: the kernel knows nothing of the offset, so deadlines are taken back to its clock.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
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

static void move(struct timespec *at, double by_s) {
  long long ns = at->tv_sec * 1000000000LL + at->tv_nsec + (long long)(by_s * 1e9);
  at->tv_sec = ns / 1000000000LL;
  at->tv_nsec = ns % 1000000000LL;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
  int failed = syscall(SYS_clock_gettime, clock, at);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) move(at, *offset_s);
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

int timespec_get(struct timespec *at, int base) {
  return base == TIME_UTC && !clock_gettime(CLOCK_REALTIME, at) ? base : 0;
}

time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}

// A condition variable may have been made for the monotonic clock, whose moments are seconds since the start of
// the machine: far from any date.
static clockid_t true_deadline(struct timespec *at) {
  if (at->tv_sec < 500000000) return CLOCK_MONOTONIC;
  move(at, -*offset_s);
  return CLOCK_REALTIME;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
  struct timespec at = *until;
  clockid_t clock = true_deadline(&at);
  return pthread_cond_clockwait(condition, mutex, clock, &at);
}

int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *until) {
  struct timespec at = *until;
  clockid_t clock = true_deadline(&at);
  return pthread_mutex_clocklock(mutex, clock, &at);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *until) {
  struct timespec at = *until;
  clockid_t clock = true_deadline(&at);
  return sem_clockwait(semaphore, clock, &at);
}

// Of the C library's own threads, whose objects are those of POSIX under other names.
static int as_thrd(int error) { return error == 0 ? thrd_success : error == ETIMEDOUT ? thrd_timedout : thrd_error; }

int cnd_timedwait(cnd_t *condition, mtx_t *mutex, const struct timespec *until) {
  return as_thrd(pthread_cond_timedwait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex, until));
}

int mtx_timedlock(mtx_t *mutex, const struct timespec *until) {
  return as_thrd(pthread_mutex_timedlock((pthread_mutex_t *)mutex, until));
}
