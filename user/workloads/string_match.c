/* Looks for four words among the lines of a file (sm). As in Phoenix, the words are known in a scrambled
 * form only, so each line is scrambled and compared. */
#include "workload.h"

enum { WORDS = 4, LONGEST = 64 };

static const char *const words[WORDS] = { "address", "space", "thread", "fault" };
static unsigned char scrambled[WORDS][LONGEST];

struct job {
    const unsigned char *text;
    long first, end, length;
    long found[WORDS];
};

/* Scrambles a line, and returns its length. */
static int scramble(const unsigned char *line, long most, unsigned char *into)
{
    int length = 0;
    unsigned char last = 5;
    for (; length < LONGEST - 1 && length < most && line[length] != '\n'; length++)
        last = into[length] = (line[length] + last * 7) ^ 0x5a;
    into[length] = 0;
    return length;
}

static void *search(void *argument)
{
    struct job *job = argument;
    unsigned char line[LONGEST];
    long at = job->first;
    while (at < job->end) {
        int length = scramble(job->text + at, job->length - at, line);
        for (int i = 0; i < WORDS; i++)
            job->found[i] += !memcmp(line, scrambled[i], length + 1);
        at += length;
        while (at < job->length && job->text[at] != '\n')
            at++;
        at++;
    }
    return NULL;
}

/* Returns the first line that begins at or after a place. */
static long line_at(const unsigned char *text, long length, long at)
{
    if (at == 0)
        return 0;
    while (at < length && text[at - 1] != '\n')
        at++;
    return at;
}

int main(int argc, char **argv)
{
    (void)argc;
    read_arguments(argv, 1, 1);
    long length;
    const unsigned char *text = map_input(&length);
    struct job *jobs = calloc(threads, sizeof *jobs);
    if (!jobs)
        die("calloc");
    for (int i = 0; i < WORDS; i++)
        scramble((const unsigned char *)words[i], strlen(words[i]), scrambled[i]);
    for (int i = 0; i < threads; i++) {
        jobs[i].text = text;
        jobs[i].length = length;
        jobs[i].first = line_at(text, length, part(length, i));
        jobs[i].end = line_at(text, length, part(length, i + 1));
    }
    run(search, jobs, sizeof *jobs);
    for (int i = 0; i < WORDS; i++) {
        long all = 0;
        for (int thread = 0; thread < threads; thread++)
            all += jobs[thread].found[i];
        printf("string_match: %s %ld\n", words[i], all);
    }
    return 0;
}
