/* personality: what is remembered, inherited and kept by programs, and addresses that are not random. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

#define ASK 0xffffffffUL

static void *of_thread(void *word)
{
    *(int *)word = personality(ASK);
    personality(PER_BSD);
    return NULL;
}

/* Runs this program again, which prints its personality, or the address of a mapping. */
static void again(const char *self, const char *what, char *text, int room)
{
    int ends[2], status = 1;
    if (pipe(ends) != 0)
        exit(1);
    if (fork() == 0) {
        dup2(ends[1], 1);
        execl("/proc/self/exe", self, what, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    memset(text, 0, room);
    for (int done = 0, now; (now = read(ends[0], text + done, room - 1 - done)) > 0;)
        done += now;
    close(ends[0]);
    wait(&status);
    if (status != 0)
        strcpy(text, "no end\n");
}

/* Returns whether two runs have one layout. */
static int is_fixed(const char *self)
{
    char one[200], other[200];
    again(self, "layout", one, sizeof one);
    again(self, "layout", other, sizeof other);
    return strcmp(one, other) == 0;
}

/* Prints what /proc tells of one. */
static void print_file(void)
{
    char text[40] = "";
    personality(PER_SVR4 | ADDR_NO_RANDOMIZE);
    FILE *file = fopen("/proc/self/personality", "r");
    printf("in /proc: %s", file && fgets(text, sizeof text, file) ? text : "nothing\n");
    if (file)
        fclose(file);
    personality(0);
}

static void inherit(const char *self, unsigned long wanted)
{
    char text[200];
    int status = 0, seen = -1;
    pthread_t thread;
    personality(wanted);
    printf("set %#lx, seen %#x\n", wanted, personality(ASK));
    pid_t pid = fork();
    if (pid == 0)
        _exit(personality(ASK) == (int)wanted ? 7 : 8);
    waitpid(pid, &status, 0);
    printf("a child has it: %d\n", WEXITSTATUS(status));
    again(self, "ask", text, sizeof text);
    printf("a program has %s", text);
    pthread_create(&thread, NULL, of_thread, &seen);
    pthread_join(thread, NULL);
    printf("a thread had %#x, and this has %#x\n", seen, personality(ASK));
}

int main(int count, char **words)
{
    if (count > 1 && strcmp(words[1], "ask") == 0) {
        printf("%#x\n", personality(ASK));
        return 0;
    }
    if (count > 1) {
        void *at = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        printf("%p\n", at);
        return 0;
    }
    setvbuf(stdout, NULL, _IONBF, 0);
    if (personality(ADDR_NO_RANDOMIZE) < 0)
        return 97;
    personality(PER_LINUX);
    printf("first %#x, ", personality(ASK));
    printf("then %#x, ", personality(PER_SVR4));
    printf("then %#x, ", personality(0));
    printf("at last %#x\n", personality(0));
    printf("many bits: %#x\n", (personality(0x123456789abcUL), personality(0)));
    print_file();
    inherit(words[0], PER_SVR4);
    inherit(words[0], ADDR_NO_RANDOMIZE);
    inherit(words[0], READ_IMPLIES_EXEC | STICKY_TIMEOUTS);
    personality(0);
    printf("random layouts are fixed: %d\n", is_fixed(words[0]));
    personality(ADDR_NO_RANDOMIZE);
    printf("others: %d\n", is_fixed(words[0]));
    return 0;
}
