/* Processes write, append to, truncate, map and close the same files of the current directory at once. At the
 * end it prints each file's length and sum as they are read here. The host's are the same when all is over.
 *
 * mountstorm PROCESSES CALLS SEED */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "page_counts.h"

enum { FILES = 3, MOST = 64 * PAGE };

static uint64_t state;
static char bytes[5 * PAGE];

static uint64_t below(uint64_t limit)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 24) % limit;
}

static const char *name(int number)
{
    static char text[20];
    snprintf(text, sizeof text, "storm%d", number);
    return text;
}

static void work(long calls)
{
    int files[FILES];
    for (int i = 0; i < FILES; i++)
        files[i] = open(name(i), O_RDWR | O_CREAT, 0600);
    for (long call = 0; call < calls; call++) {
        int number = below(FILES), file = files[number];
        size_t length = below(3) ? below(sizeof bytes) : PAGE;
        off_t at = below(2) ? below(MOST) : below(MOST / PAGE) * PAGE;
        memset(bytes, 'a' + below(26), length);
        switch (below(10)) {
        case 0 ... 3:
            pwrite(file, bytes, length, at);
            break;
        case 4:
            pread(file, bytes, length, at);
            break;
        case 5:
            ftruncate(file, at);
            break;
        case 6:
            fsync(file);
            break;
        case 7: {
            char *map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, at & -PAGE);
            if (map != MAP_FAILED)
                munmap(map, PAGE);
            break;
        }
        default:
            close(file);
            files[number] = open(name(number), O_RDWR | (below(2) ? O_APPEND : 0), 0600);
            if (below(2))
                write(files[number], bytes, length);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    for (int i = 0; i < atoi(argv[1]); i++)
        if (fork() == 0) {
            state = strtoull(argv[3], NULL, 0) * 1000003 + i;
            below(2);
            work(atol(argv[2]));
            _exit(0);
        }
    while (wait(NULL) > 0)
        ;
    compare_all();
    for (int i = 0; i < FILES; i++) {
        uint64_t sum = 0;
        long length = 0, got;
        int file = open(name(i), O_RDONLY);
        while ((got = read(file, bytes, sizeof bytes)) > 0) {
            for (long at = 0; at < got; at++)
                sum = sum * 31 + (unsigned char)bytes[at];
            length += got;
        }
        printf("%s %ld bytes, sum %lx\n", name(i), length, (unsigned long)sum);
    }
    return 0;
}
