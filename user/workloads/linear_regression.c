/* Fits a line to the points of a file, two bytes each (lr). It is written naively, as in Phoenix: the sums
 * of neighbouring threads are 64 bytes apart in memory of malloc, which begins 16 bytes after a cache line.
 * So they share lines. */
#include "workload.h"

struct point {
    unsigned char x, y;
};

struct sums {
    const struct point *points;
    long first, end;
    /* Volatile, because compilers of today keep them in registers, and GCC 4.6 of the paper did not. */
    volatile long long x, y, xx, yy, xy;
};

static void *add(void *argument)
{
    struct sums *sums = argument;
    for (long i = sums->first; i < sums->end; i++) {
        sums->x += sums->points[i].x;
        sums->xx += sums->points[i].x * sums->points[i].x;
        sums->y += sums->points[i].y;
        sums->yy += sums->points[i].y * sums->points[i].y;
        sums->xy += sums->points[i].x * sums->points[i].y;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    (void)argc;
    read_arguments(argv, 1, 1);
    long length;
    const void *points = map_input(&length);
    long count = length / 2;
    struct sums *sums = calloc(threads, sizeof *sums);
    if (!sums)
        die("calloc");
    for (int i = 0; i < threads; i++) {
        sums[i].points = points;
        sums[i].first = part(count, i);
        sums[i].end = part(count, i + 1);
    }
    run(add, sums, sizeof *sums);
    long long x = 0, y = 0, xx = 0, yy = 0, xy = 0;
    for (int i = 0; i < threads; i++) {
        x += sums[i].x;
        y += sums[i].y;
        xx += sums[i].xx;
        yy += sums[i].yy;
        xy += sums[i].xy;
    }
    double slope = (double)(count * xy - x * y) / (double)(count * xx - x * x);
    printf("linear_regression: %ld points, %lld %lld %lld, slope %.6f\n", count, xx, yy, xy, slope);
    return 0;
}
