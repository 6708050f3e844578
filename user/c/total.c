/* Prints the size of a file and the sum of its bytes, by read and by a mapping. Exits with 2 if the sums
 * differ, or if it is no regular file.
 *
 * total FILE */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void require(int good, const char *what)
{
    if (!good) {
        printf("total: %s\n", what);
        exit(2);
    }
}

static unsigned long sum(const unsigned char *bytes, long count)
{
    unsigned long total = 0;
    for (long at = 0; at < count; at++)
        total += bytes[at];
    return total;
}

int main(int count, char **words)
{
    static unsigned char buffer[1 << 16];
    require(count > 1, "no file");
    int file = open(words[1], O_RDONLY);
    require(file >= 0, "open");
    struct stat known;
    require(fstat(file, &known) == 0 && S_ISREG(known.st_mode), "no regular file");
    unsigned long read_sum = 0;
    for (ssize_t got; (got = read(file, buffer, sizeof buffer)) > 0;)
        read_sum += sum(buffer, got);
    unsigned char *mapped = mmap(NULL, known.st_size, PROT_READ, MAP_SHARED, file, 0);
    require(mapped != MAP_FAILED, "mmap");
    require(sum(mapped, known.st_size) == read_sum, "the sums differ");
    printf("total: %ld bytes, %lu\n", (long)known.st_size, read_sum);
    return 0;
}
