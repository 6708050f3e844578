/* Stores repeated parts of a file once and packs the others (dedup). As in PARSEC it is a pipeline whose
 * stages hand each other memory of malloc: one thread cuts blocks, N find repeated chunks, N pack, and one
 * puts the result in order. */
#include "workload.h"

enum { BLOCK = 256 << 10, LEAST_CHUNK = 1 << 10, MOST_CHUNK = 32 << 10, BUCKETS = 1 << 14, PLACES = 64 };

struct chunk {
    unsigned char *bytes;
    long length;
    uint64_t name[2];
    int is_new;
    struct chunk *next_in_bucket, *next_in_block;
};

struct block {
    long number;
    unsigned char *bytes;
    long length;
    struct chunk *chunks;
};

/* A queue of blocks between two stages. It is closed when all threads before it are done. */
struct queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct block *places[PLACES];
    long put, taken;
    int writers;
};

static struct queue queues[3];

static void put(struct queue *queue, struct block *block)
{
    pthread_mutex_lock(&queue->lock);
    while (queue->put - queue->taken == PLACES)
        pthread_cond_wait(&queue->changed, &queue->lock);
    queue->places[queue->put++ % PLACES] = block;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

/* Returns the next block, or NULL if there will be none. */
static struct block *get(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    while (queue->put == queue->taken && queue->writers)
        pthread_cond_wait(&queue->changed, &queue->lock);
    struct block *block = queue->put == queue->taken ? NULL : queue->places[queue->taken++ % PLACES];
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    return block;
}

static void leave(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->writers--;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

static struct chunk *buckets[BUCKETS];
static pthread_mutex_t bucket_locks[BUCKETS];

static void name(struct chunk *chunk)
{
    chunk->name[0] = 1;
    chunk->name[1] = 2;
    for (long i = 0; i < chunk->length; i += 8) {
        uint64_t word = 0;
        memcpy(&word, chunk->bytes + i, chunk->length - i < 8 ? chunk->length - i : 8);
        chunk->name[0] = digest(chunk->name[0], word);
        chunk->name[1] = digest(chunk->name[1], word + 1);
    }
}

/* Puts a chunk into the table, unless an equal one is there. */
static void look_up(struct chunk *chunk)
{
    long bucket = chunk->name[0] % BUCKETS;
    pthread_mutex_lock(&bucket_locks[bucket]);
    struct chunk *other = buckets[bucket];
    while (other && memcmp(other->name, chunk->name, sizeof chunk->name))
        other = other->next_in_bucket;
    chunk->is_new = !other;
    if (chunk->is_new) {
        chunk->next_in_bucket = buckets[bucket];
        buckets[bucket] = chunk;
    }
    pthread_mutex_unlock(&bucket_locks[bucket]);
}

/* Returns the length of a chunk, which ends where its last bytes decide. */
static long chunk_length(const unsigned char *bytes, long most)
{
    uint64_t rolling = 0;
    for (long i = 0; i < most; i++) {
        rolling = (rolling << 1) + bytes[i] * 0x9e3779b97f4a7c15;
        if (i + 1 >= LEAST_CHUNK && (rolling >> 52 == 0 || i + 1 == MOST_CHUNK))
            return i + 1;
    }
    return most;
}

static void *find_repeated(void *argument)
{
    (void)argument;
    for (struct block *block; (block = get(&queues[0]));) {
        struct chunk **last = &block->chunks;
        for (long at = 0; at < block->length;) {
            struct chunk *chunk = get_memory(sizeof *chunk);
            *chunk = (struct chunk){ .length = chunk_length(block->bytes + at, block->length - at) };
            chunk->bytes = get_memory(chunk->length);
            memcpy(chunk->bytes, block->bytes + at, chunk->length);
            at += chunk->length;
            name(chunk);
            look_up(chunk);
            *last = chunk;
            last = &chunk->next_in_block;
        }
        free(block->bytes);
        put(&queues[1], block);
    }
    leave(&queues[1]);
    return NULL;
}

static unsigned position(const unsigned char *bytes)
{
    uint32_t word;
    memcpy(&word, bytes, 4);
    return word * 2654435761u >> 20;
}

/* Packs bytes: lengths and distances of repeated strings, and the bytes between. Returns the length. */
static long pack(const unsigned char *bytes, long length, unsigned char *into)
{
    int last[4096];
    long at = 0, written = 0;
    memset(last, -1, sizeof last);
    while (at < length) {
        long match = 0, from = -1;
        if (at + 4 <= length) {
            unsigned place = position(bytes + at);
            from = last[place];
            last[place] = at;
            while (from >= 0 && match < 127 && at + match < length && bytes[from + match] == bytes[at + match])
                match++;
        }
        if (match < 4) {
            into[written++] = 0x80;
            into[written++] = bytes[at++];
            continue;
        }
        into[written++] = match;
        into[written++] = (at - from) & 0xff;
        into[written++] = (at - from) >> 8;
        at += match;
    }
    return written;
}

static void *pack_new(void *argument)
{
    (void)argument;
    for (struct block *block; (block = get(&queues[1]));) {
        for (struct chunk *chunk = block->chunks; chunk; chunk = chunk->next_in_block) {
            if (!chunk->is_new)
                continue;
            unsigned char *packed = get_memory(2 * chunk->length + 3);
            long length = pack(chunk->bytes, chunk->length, packed);
            free(chunk->bytes);
            chunk->bytes = realloc(packed, length);
            chunk->length = length;
        }
        put(&queues[2], block);
    }
    leave(&queues[2]);
    return NULL;
}

static long repeated, new_chunks, packed_bytes;
static uint64_t names;

/* Counts the chunks of a block, and frees those that are not in the table. */
static void store(struct block *block)
{
    for (struct chunk *chunk = block->chunks, *next; chunk; chunk = next) {
        next = chunk->next_in_block;
        names = digest(names, chunk->name[0]);
        if (chunk->is_new) {
            new_chunks++;
            packed_bytes += chunk->length;
            free(chunk->bytes);
        } else {
            repeated++;
            free(chunk->bytes);
            free(chunk);
        }
    }
    free(block);
}

/* Stores blocks in the order of the file. */
static void *store_in_order(void *argument)
{
    long blocks = *(long *)argument, next = 0;
    struct block **waiting = calloc(blocks + 1, sizeof *waiting);
    if (!waiting)
        die("calloc");
    for (struct block *block; (block = get(&queues[2]));) {
        waiting[block->number] = block;
        for (; waiting[next]; next++)
            store(waiting[next]);
    }
    free(waiting);
    return NULL;
}

int main(int argc, char **argv)
{
    (void)argc;
    read_arguments(argv, 1, 1);
    long length;
    const unsigned char *bytes = map_input(&length);
    long blocks = (length + BLOCK - 1) / BLOCK;
    pthread_t made[2 * MOST_THREADS + 1];
    for (int i = 0; i < 3; i++) {
        pthread_mutex_init(&queues[i].lock, NULL);
        pthread_cond_init(&queues[i].changed, NULL);
        queues[i].writers = i == 0 ? 1 : threads;
    }
    for (int i = 0; i < BUCKETS; i++)
        pthread_mutex_init(&bucket_locks[i], NULL);
    for (int i = 0; i < 2 * threads + 1; i++) {
        void *(*body)(void *) = i == 2 * threads ? store_in_order : i % 2 ? find_repeated : pack_new;
        if (pthread_create(&made[i], NULL, body, &blocks))
            die("pthread_create");
    }
    for (long i = 0; i < blocks; i++) {
        struct block *block = get_memory(sizeof *block);
        *block = (struct block){ .number = i, .length = i + 1 < blocks ? BLOCK : length - i * BLOCK };
        block->bytes = get_memory(block->length);
        memcpy(block->bytes, bytes + i * BLOCK, block->length);
        put(&queues[0], block);
    }
    leave(&queues[0]);
    for (int i = 0; i < 2 * threads + 1; i++)
        pthread_join(made[i], NULL);
    printf("dedup: %ld chunks, %ld repeated, %ld bytes packed, %016lx\n", new_chunks, repeated, packed_bytes, names);
    return 0;
}
