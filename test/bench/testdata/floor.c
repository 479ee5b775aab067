// The floors that a program in C sets, and a starter that measures one program.
//
//   floor spawn N WIDTH FILE PROGRAM ARG…  starts a program N times, WIDTH at a
//       time, its output into FILE opened anew for each, and prints nanoseconds
//   floor run RESULT PROGRAM ARG…  starts a program once and writes to RESULT:
//       begin and end (ns since 1970), CPU (µs), peak memory (KiB), exit status
//
// The starter is small on purpose: Linux counts the memory of the one who starts
// a program as part of the program's peak.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static long long now(clockid_t clock) {
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void die(const char *what, int err) {
	fprintf(stderr, "floor: %s: %s\n", what, strerror(err));
	exit(1);
}

static pid_t start(const char *file, char **argv) {
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	pid_t pid;
	int fd = -1;

	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
	if (file) {
		fd = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0)
			die(file, errno);
		posix_spawn_file_actions_adddup2(&files, fd, 1);
		posix_spawn_file_actions_adddup2(&files, fd, 2);
	}
	int err = posix_spawnp(&pid, argv[0], &files, &attr, argv, environ);
	if (err)
		die(argv[0], err);
	if (fd >= 0)
		close(fd);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	return pid;
}

static int spawn(int n, int width, const char *file, char **argv) {
	long long begin = now(CLOCK_MONOTONIC);
	int live = 0, status;

	while (n > 0 || live > 0) {
		if (n > 0 && live < width) {
			start(file, argv);
			n--;
			live++;
			continue;
		}
		if (wait(&status) < 0)
			die("wait", errno);
		live--;
	}
	printf("%lld\n", now(CLOCK_MONOTONIC) - begin);
	return 0;
}

static int run(const char *result, char **argv) {
	struct rusage u;
	int status;
	long long begin = now(CLOCK_REALTIME);
	pid_t pid = start(NULL, argv);
	if (wait4(pid, &status, 0, &u) < 0)
		die("wait", errno);
	long long end = now(CLOCK_REALTIME);
	FILE *f = fopen(result, "w");
	if (!f)
		die(result, errno);
	fprintf(f, "%lld %lld %lld %ld %d\n", begin, end,
		(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000LL + u.ru_utime.tv_usec + u.ru_stime.tv_usec,
		u.ru_maxrss, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	return fclose(f) != 0;
}

int main(int argc, char **argv) {
	if (argc > 5 && !strcmp(argv[1], "spawn"))
		return spawn(atoi(argv[2]), atoi(argv[3]), argv[4], argv + 5);
	if (argc > 3 && !strcmp(argv[1], "run"))
		return run(argv[2], argv + 3);
	fprintf(stderr, "usage: floor spawn N WIDTH FILE PROGRAM ARG... | floor run RESULT PROGRAM ARG...\n");
	return 2;
}
