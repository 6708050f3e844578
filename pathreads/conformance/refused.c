// Makes a child between the marks, when Linux refuses to change mappings (`counts`): the child has the memory
// as it was, and the parent loses none. `refused WAY`: 0 for memory that no child has had, 1 for memory in many
// parts.
#include "marks.h"
#include "rule.h"

enum { PAGES = 6 << 14, WRITES = 3000, ROUNDS = 4 };

static unsigned char *at;

static void number_pages(void) {
    for (size_t i = 0; i < PAGES; i++) *(size_t *)(at + i * page) = i + 1;
}

static size_t wrong_pages(void) {
    size_t wrong = 0;
    for (size_t i = 0; i < PAGES; i++) wrong += *(size_t *)(at + i * page) != i + 1;
    return wrong;
}

// Makes a child that says how much is wrong when `ends` is closed.
static pid_t make_child(const int *ends) {
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(ends[1]);
        NEED(read(ends[0], &byte, 1) == 0);
        _exit(wrong_pages() != 0);
    }
    return child;
}

static void end_child(pid_t child, int *ends) {
    close(ends[0]);
    close(ends[1]);
    say_end("the child", child);
}

int main(int count, char **words) {
    NEED(count == 2);
    at = map_pages(PAGES);
    number_pages();
    for (int i = 0; i < 1000; i++) getppid();
    int ends[2];
    unsigned random = 1;
    // Children that live while the parent writes here and there leave its memory in many parts.
    for (int i = 0; i < ROUNDS * atoi(words[1]); i++) {
        NEED(pipe(ends) == 0);
        pid_t child = make_child(ends);
        for (unsigned write = 0; write < WRITES; write++) {
            at[next_random(&random) % PAGES * page + 9] = 1;
        }
        end_child(child, ends);
    }
    NEED(pipe(ends) == 0);
    begin_part();
    pid_t child = make_child(ends);
    end_part();
    SAY("%zu pages are wrong\n", wrong_pages());
    for (size_t i = 0; i < PAGES; i++) *(size_t *)(at + i * page) = 77;
    end_child(child, ends);
    return 0;
}
