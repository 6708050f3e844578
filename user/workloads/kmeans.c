/* Groups points by the nearest of 100 means until nothing changes (kmeans). As in Phoenix, each round makes
 * its threads anew. --size is the number of points. */
#include "workload.h"

enum { DIMENSIONS = 3, MEANS = 100, GRID = 1000 };

static int (*points)[DIMENSIONS];
static int means[MEANS][DIMENSIONS];
static int *groups;

struct job {
    long thread;
    long moved;
    long sums[MEANS][DIMENSIONS], counts[MEANS];
};

static long distance(const int *left, const int *right)
{
    long sum = 0;
    for (int i = 0; i < DIMENSIONS; i++)
        sum += (long)(left[i] - right[i]) * (left[i] - right[i]);
    return sum;
}

static int nearest(const int *point)
{
    int best = 0;
    long least = distance(point, means[0]);
    for (int i = 1; i < MEANS; i++) {
        long far = distance(point, means[i]);
        if (far < least) {
            least = far;
            best = i;
        }
    }
    return best;
}

static void *assign(void *argument)
{
    struct job *job = argument;
    for (long i = part(size, job->thread); i < part(size, job->thread + 1); i++) {
        int group = nearest(points[i]);
        job->moved += group != groups[i];
        groups[i] = group;
        job->counts[group]++;
        for (int k = 0; k < DIMENSIONS; k++)
            job->sums[group][k] += points[i][k];
    }
    return NULL;
}

/* Makes each mean that of its group. */
static void move_means(const struct job *jobs)
{
    for (int i = 0; i < MEANS; i++)
        for (int k = 0; k < DIMENSIONS; k++) {
            long sum = 0, count = 0;
            for (int thread = 0; thread < threads; thread++) {
                sum += jobs[thread].sums[i][k];
                count += jobs[thread].counts[i];
            }
            if (count)
                means[i][k] = sum / count;
        }
}

int main(int argc, char **argv)
{
    (void)argc;
    read_arguments(argv, 20000, 0);
    points = get_memory(size * sizeof *points);
    groups = calloc(size, sizeof *groups);
    struct job *jobs = get_memory(threads * sizeof *jobs);
    if (!groups)
        die("calloc");
    uint64_t random = 1;
    for (long i = 0; i < size; i++)
        for (int k = 0; k < DIMENSIONS; k++)
            points[i][k] = next_random(&random) % GRID;
    for (int i = 0; i < MEANS; i++)
        for (int k = 0; k < DIMENSIONS; k++)
            means[i][k] = next_random(&random) % GRID;
    long rounds = 0, moved;
    do {
        memset(jobs, 0, threads * sizeof *jobs);
        for (int i = 0; i < threads; i++)
            jobs[i].thread = i;
        run(assign, jobs, sizeof *jobs);
        move_means(jobs);
        moved = 0;
        for (int i = 0; i < threads; i++)
            moved += jobs[i].moved;
        rounds++;
    } while (moved);
    uint64_t sum = 0;
    for (int i = 0; i < MEANS; i++)
        for (int k = 0; k < DIMENSIONS; k++)
            sum = digest(sum, means[i][k]);
    printf("kmeans: %ld points, %ld rounds, %016lx\n", size, rounds, sum);
    return 0;
}
