/* Counts the values of red, green and blue in a file of pixels (hist). Its page faults contend in the
 * paper. */
#include "workload.h"

struct job {
    const unsigned char *pixels;
    long first, end;
    long counts[3][256];
};

static void *count(void *argument)
{
    struct job *job = argument;
    /* The thread's own memory: neighbouring jobs share cache lines. */
    long counts[3][256] = { 0 };
    for (long i = job->first; i < job->end; i++)
        for (int colour = 0; colour < 3; colour++)
            counts[colour][job->pixels[3 * i + colour]]++;
    memcpy(job->counts, counts, sizeof counts);
    return NULL;
}

int main(int argc, char **argv)
{
    (void)argc;
    read_arguments(argv, 1, 1);
    long length;
    const unsigned char *pixels = map_input(&length);
    struct job *jobs = calloc(threads, sizeof *jobs);
    if (!jobs)
        die("calloc");
    for (int i = 0; i < threads; i++) {
        jobs[i].pixels = pixels;
        jobs[i].first = part(length / 3, i);
        jobs[i].end = part(length / 3, i + 1);
    }
    run(count, jobs, sizeof *jobs);
    uint64_t sum = 0;
    for (int colour = 0; colour < 3; colour++)
        for (int value = 0; value < 256; value++) {
            long all = 0;
            for (int i = 0; i < threads; i++)
                all += jobs[i].counts[colour][value];
            sum = digest(sum, all);
        }
    printf("histogram: %ld pixels, %016lx\n", length / 3, sum);
    return 0;
}
