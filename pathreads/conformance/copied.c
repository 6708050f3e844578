// Another thread begins to map memory while the first one makes a child, and is stopped after any instruction
// (`stopped`). The child maps memory, too: it does not wait for what the thread was about.
#include "marks.h"
#include "rule.h"

enum { TRACER = 3, PAGES = 300 };

static sem_t go, done;
static volatile pid_t mapper;
static volatile long is_over;

static void *map_again_and_again(void *unused) {
    mapper = gettid();
    sem_post(&done);
    while (!is_over) {
        sem_wait(&go);
        begin_part();
        void *at = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        is_over = end_part();
        NEED(at != MAP_FAILED && munmap(at, PAGES * page) == 0);
        sem_post(&done);
    }
    return unused;
}

static volatile pid_t child;
static void end_both(int signal) {
    kill(child, SIGKILL);
    _exit(signal);
}

static void map_in_child(void) {
    child = fork();
    if (child == 0) {
        unsigned char *at = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        _exit(at == MAP_FAILED);
    }
    int status;
    // So that a child that waits for ever does not stay.
    alarm(60);
    NEED(waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
    char unused;
    NEED(sem_init(&go, 0, 0) == 0 && sem_init(&done, 0, 0) == 0);
    NEED(signal(SIGALRM, end_both) != SIG_ERR);
    for (int i = 0; i < 1000; i++) getppid();
    pthread_t thread = start(map_again_and_again, NULL);
    sem_wait(&done);
    NEED(write(TRACER, (const void *)&mapper, sizeof mapper) == sizeof mapper && read(TRACER, &unused, 1) == 1);
    while (!is_over) {
        sem_post(&go);
        NEED(read(TRACER, &unused, 1) == 1);
        map_in_child();
        sem_wait(&done);
    }
    finish(thread);
    SAY("children map memory everywhere\n");
    return 0;
}
