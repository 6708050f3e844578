/* Simulates a fluid of particles in a box of cells (flui). Each thread has a slab of cells and locks those
 * at its borders for each pair of particles, and all meet at a barrier after each step, as in PARSEC. Sums
 * are of whole numbers, so their order does not matter. --size is the number of particles,
 * --synchronisation prints the time in locks and barriers. */
#include <math.h>
#include <time.h>

#include "workload.h"

enum { SIDE = 24, CELLS = SIDE * SIDE * SIDE, FRAMES = 5 };

static const double UNIT = 1 << 20, STEP = 0.01, REST = 1.5;

struct particle {
    double place[3], speed[3];
    int64_t density, force[3];
    long next;
};

static struct particle *particles;
static long first_of[CELLS];
static pthread_mutex_t locks[CELLS];
static pthread_barrier_t barrier;
static int is_timed;
static uint64_t waited;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

static void meet(void)
{
    uint64_t start = is_timed ? now() : 0;
    pthread_barrier_wait(&barrier);
    if (is_timed)
        __atomic_fetch_add(&waited, now() - start, __ATOMIC_RELAXED);
}

static void take(long cell)
{
    uint64_t start = is_timed ? now() : 0;
    pthread_mutex_lock(&locks[cell]);
    if (is_timed)
        __atomic_fetch_add(&waited, now() - start, __ATOMIC_RELAXED);
}

static long cell_of(const double *place)
{
    return ((long)place[2] * SIDE + (long)place[1]) * SIDE + (long)place[0];
}

/* Returns whether another thread may change a cell: whether it lies in the first or last layer of a slab. */
static int is_border(long cell)
{
    long layer = cell / (SIDE * SIDE);
    for (int i = 0; i <= threads; i++) {
        long start = part(SIDE, i);
        if (layer == start || layer == start - 1)
            return threads > 1;
    }
    return 0;
}

/* Adds what two particles do to each other. */
typedef void effect(const struct particle *, const struct particle *, double, int64_t sum[4]);

static void add_density(const struct particle *left, const struct particle *right, double square, int64_t sum[4])
{
    (void)left, (void)right;
    sum[3] = llround(pow(1 - square, 3) * UNIT);
}

static void add_force(const struct particle *left, const struct particle *right, double square, int64_t sum[4])
{
    double far = sqrt(square) + 1e-9, near = 1 - far;
    double pressure = (left->density + right->density) / UNIT - 2 * REST;
    for (int i = 0; i < 3; i++) {
        double push = pressure * near * near * (left->place[i] - right->place[i]) / far;
        sum[i] = llround((push + 0.5 * near * (right->speed[i] - left->speed[i])) * UNIT);
    }
}

static void add(struct particle *particle, long cell, int is_shared, int64_t sign, const int64_t sum[4])
{
    if (is_shared)
        take(cell);
    for (int i = 0; i < 3; i++)
        particle->force[i] += sign * sum[i];
    particle->density += sum[3];
    if (is_shared)
        pthread_mutex_unlock(&locks[cell]);
}

static void pairs_of_cells(long cell, long other, effect *effect)
{
    int is_shared = is_border(cell), is_other_shared = is_border(other);
    for (long i = first_of[cell]; i >= 0; i = particles[i].next)
        for (long k = cell == other ? particles[i].next : first_of[other]; k >= 0; k = particles[k].next) {
            double square = 0;
            for (int axis = 0; axis < 3; axis++)
                square += pow(particles[i].place[axis] - particles[k].place[axis], 2);
            if (square >= 1)
                continue;
            int64_t sum[4] = { 0 };
            effect(&particles[i], &particles[k], square, sum);
            add(&particles[i], cell, is_shared, 1, sum);
            add(&particles[k], other, is_other_shared, -1, sum);
        }
}

/* Visits all pairs of neighbours whose first cell is this one. */
static void pairs(long cell, effect *effect)
{
    long x = cell % SIDE, y = cell / SIDE % SIDE, z = cell / (SIDE * SIDE);
    for (int step = 13; step < 27; step++) {
        long to_x = x + step % 3 - 1, to_y = y + step / 3 % 3 - 1, to_z = z + step / 9 - 1;
        if (to_x < 0 || to_y < 0 || to_x >= SIDE || to_y >= SIDE || to_z >= SIDE)
            continue;
        pairs_of_cells(cell, (to_z * SIDE + to_y) * SIDE + to_x, effect);
    }
}

static void move(struct particle *particle)
{
    for (int i = 0; i < 3; i++) {
        double gravity = i == 1 ? -9.8 : 0;
        particle->speed[i] += STEP * (particle->force[i] / UNIT + gravity);
        particle->speed[i] = fmax(-20, fmin(20, particle->speed[i]));
        particle->place[i] += STEP * particle->speed[i];
        if (particle->place[i] < 0 || particle->place[i] >= SIDE) {
            particle->place[i] = particle->place[i] < 0 ? 0 : SIDE - 1e-6;
            particle->speed[i] *= -0.5;
        }
    }
}

static void put_into_cell(long number)
{
    long cell = cell_of(particles[number].place);
    take(cell);
    particles[number].next = first_of[cell];
    first_of[cell] = number;
    pthread_mutex_unlock(&locks[cell]);
}

static void *work(void *argument)
{
    long thread = *(long *)argument;
    long first_cell = part(SIDE, thread) * SIDE * SIDE, end_cell = part(SIDE, thread + 1) * SIDE * SIDE;
    long first = part(size, thread), end = part(size, thread + 1);
    for (int frame = 0; frame < FRAMES; frame++) {
        for (long cell = first_cell; cell < end_cell; cell++)
            first_of[cell] = -1;
        meet();
        for (long i = first; i < end; i++) {
            memset(particles[i].force, 0, sizeof particles[i].force);
            particles[i].density = UNIT;
            put_into_cell(i);
        }
        meet();
        for (long cell = first_cell; cell < end_cell; cell++)
            pairs(cell, add_density);
        meet();
        for (long cell = first_cell; cell < end_cell; cell++)
            pairs(cell, add_force);
        meet();
        for (long i = first; i < end; i++)
            move(&particles[i]);
        meet();
    }
    return NULL;
}

int main(int argc, char **argv)
{
    (void)argc;
    if (argv[1] && !strcmp(argv[1], "--synchronisation"))
        is_timed = 1, argv[1] = argv[0], argv++;
    read_arguments(argv, 30000, 0);
    particles = calloc(size, sizeof *particles);
    if (!particles)
        die("calloc");
    uint64_t random = 1;
    for (long i = 0; i < size; i++)
        for (int axis = 0; axis < 3; axis++)
            particles[i].place[axis] = SIDE * next_fraction(&random) * (axis == 1 ? 0.5 : 1);
    for (long i = 0; i < CELLS; i++)
        pthread_mutex_init(&locks[i], NULL);
    pthread_barrier_init(&barrier, NULL, threads);
    run_numbered(work);
    uint64_t sum = 0;
    for (long i = 0; i < size; i++)
        for (int axis = 0; axis < 3; axis++)
            sum = digest(sum, llround(particles[i].place[axis] * UNIT));
    printf("fluidanimate: %ld particles, %016lx\n", size, sum);
    if (is_timed)
        printf("synchronisation: %lu us\n", waited / 1000);
    return 0;
}
