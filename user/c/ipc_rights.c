/* Rights of SysV objects, of POSIX message queues, and of ports. Prints what Linux prints for root. */
#define _GNU_SOURCE
#include <mqueue.h>
#include <netinet/in.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>

#include "users.h"

#ifndef SHM_STAT_ANY
#define SHM_STAT_ANY 15
#endif
#ifndef SEM_STAT_ANY
#define SEM_STAT_ANY 20
#endif
#ifndef MSG_STAT_ANY
#define MSG_STAT_ANY 13
#endif

enum { INDEX = 32767 };
static const int MODES[] = {0, 0600, 0400, 0200, 0060, 0040, 0020, 0006, 0004, 0002, 0777};
enum { MODE_COUNT = sizeof MODES / sizeof *MODES };

union semun {
    int value;
    struct semid_ds *about;
    unsigned short *values;
};

static void put(const char *what, long result) {
    printf(" %s: %s,", what, result < 0 ? strerror(errno) : "ok");
}

static void put_owner(const struct ipc_perm *perm) {
    printf(" %u %u %u %u %o,", perm->uid, perm->gid, perm->cuid, perm->cgid, perm->mode);
}

static void of_root(void) {}

static void of_owner(void) {
    become(ALICE, CAROL, 0, NULL);
}

static void of_owner_in_another_group(void) {
    become(ALICE, ALICE, 0, NULL);
}

static void of_member(void) {
    become(BOB, BOB, 1, &(gid_t){CAROL});
}

static void of_group(void) {
    become(BOB, CAROL, 0, NULL);
}

static void of_stranger(void) {
    become(BOB, BOB, 0, NULL);
}

static const struct part USERS[] = {
    {"root", of_root},
    {"owner", of_owner},
    {"owner in another group", of_owner_in_another_group},
    {"member", of_member},
    {"group", of_group},
    {"stranger", of_stranger},
};

/* Calls `use` with an object as each user, in a child. */
static void each_user(void (*use)(key_t, int), key_t key, int id) {
    for (size_t user = 0; user < sizeof USERS / sizeof *USERS; user++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            USERS[user].run();
            printf("%s:", USERS[user].name);
            use(key, id);
            printf("\n");
            fflush(stdout);
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
}

/* Makes an object by `get` as alice, and returns its identifier. */
static int made_by_alice(int (*get)(key_t, int), key_t key, int mode) {
    printf("mode %o\n", mode);
    fflush(stdout);
    if (fork() == 0) {
        of_owner();
        _exit(get(key, mode) < 0);
    }
    wait(NULL);
    return get(key, 0);
}

static void attach(const char *what, int id, int flags) {
    void *at = shmat(id, NULL, flags);
    put(what, at == (void *)-1 ? -1 : 0);
    if (at != (void *)-1)
        shmdt(at);
}

static int get_segment(key_t key, int mode) {
    return shmget(key, 4096, mode ? mode | IPC_CREAT : 0);
}

static void use_segment(key_t key, int id) {
    struct shmid_ds about = {0};
    put("get", shmget(key, 0, 0));
    put("get to read", shmget(key, 0, 0444));
    put("get to write", shmget(key, 0, 0200));
    put("get more", shmget(key, 8192, 0666));
    attach("read", id, SHM_RDONLY);
    attach("write", id, 0);
    attach("execute", id, SHM_RDONLY | SHM_EXEC);
    put("stat by index", shmctl(id & INDEX, SHM_STAT, &about));
    put("any by index", shmctl(id & INDEX, SHM_STAT_ANY, &about));
    put_owner(&about.shm_perm);
    put("stat", shmctl(id, IPC_STAT, &about));
    put("lock", shmctl(id, SHM_LOCK, NULL));
    put("unlock", shmctl(id, SHM_UNLOCK, NULL));
    about.shm_perm.uid = ALICE, about.shm_perm.gid = CAROL;
    shmctl(id & INDEX, SHM_STAT_ANY, &about);
    put("set", shmctl(id, IPC_SET, &about));
    if (geteuid() == BOB)
        put("remove", shmctl(id, IPC_RMID, NULL));
}

static void of_segments(void) {
    for (int mode = 0; mode < MODE_COUNT; mode++) {
        key_t key = 0x5e60 + mode;
        int id = made_by_alice(get_segment, key, MODES[mode] | 01000);
        each_user(use_segment, key, id);
        tell("remove", shmctl(id, IPC_RMID, NULL));
    }
}

static int get_set(key_t key, int mode) {
    return semget(key, 2, mode ? mode | IPC_CREAT : 0);
}

static void use_set(key_t key, int id) {
    struct semid_ds about = {0};
    unsigned short values[2] = {0, 0};
    struct sembuf zero = {1, 0, IPC_NOWAIT}, more = {0, 1, IPC_NOWAIT}, far = {5, 1, 0};
    union semun one = {.value = 1}, info = {.about = &about}, all = {.values = values};
    put("get", semget(key, 0, 0));
    put("get to read", semget(key, 0, 0040));
    put("get to write", semget(key, 0, 0222));
    put("get more", semget(key, 3, 0666));
    put("wait", semop(id, &zero, 1));
    put("add", semop(id, &more, 1));
    put("far", semop(id, &far, 1));
    put("value", semctl(id, 0, GETVAL));
    put("no value", semctl(id, 7, GETVAL));
    put("values", semctl(id, 0, GETALL, all));
    put("set value", semctl(id, 0, SETVAL, one));
    put("set no value", semctl(id, 7, SETVAL, one));
    values[0] = values[1] = 0;
    put("set values", semctl(id, 0, SETALL, all));
    put("stat by index", semctl(id & INDEX, 0, SEM_STAT, info));
    put("stat", semctl(id, 0, IPC_STAT, info));
    put("any by index", semctl(id & INDEX, 0, SEM_STAT_ANY, info));
    put_owner(&about.sem_perm);
    put("set", semctl(id, 0, IPC_SET, info));
    if (geteuid() == BOB)
        put("remove", semctl(id, 0, IPC_RMID));
}

static void of_sets(void) {
    for (int mode = 0; mode < MODE_COUNT; mode++) {
        key_t key = 0x5e70 + mode;
        int id = made_by_alice(get_set, key, MODES[mode] | 01000);
        each_user(use_set, key, id);
        tell("remove", semctl(id, 0, IPC_RMID));
    }
}

static int get_queue(key_t key, int mode) {
    return msgget(key, mode ? mode | IPC_CREAT : 0);
}

static void use_queue(key_t key, int id) {
    struct msqid_ds about = {0};
    struct {
        long type;
        char text[8];
    } message = {1, "x"};
    put("get", msgget(key, 0));
    put("get to read", msgget(key, 0444));
    put("get to write", msgget(key, 0002));
    put("receive", msgrcv(id, &message, 8, 0, IPC_NOWAIT));
    put("send", msgsnd(id, &message, 8, IPC_NOWAIT));
    put("receive", msgrcv(id, &message, 8, 0, IPC_NOWAIT));
    put("stat by index", msgctl(id & INDEX, MSG_STAT, &about));
    put("stat", msgctl(id, IPC_STAT, &about));
    put("any by index", msgctl(id & INDEX, MSG_STAT_ANY, &about));
    put_owner(&about.msg_perm);
    put("set", msgctl(id, IPC_SET, &about));
    about.msg_qbytes = 1 << 20;
    /* Root of a container may not. */
    if (geteuid() != 0)
        put("set more bytes", msgctl(id, IPC_SET, &about));
    about.msg_qbytes = 1 << 14;
    about.msg_perm.uid = -1;
    put("set no user", msgctl(id, IPC_SET, &about));
    if (geteuid() == BOB)
        put("remove", msgctl(id, IPC_RMID, NULL));
}

static void of_queues(void) {
    for (int mode = 0; mode < MODE_COUNT; mode++) {
        key_t key = 0x5e80 + mode;
        int id = made_by_alice(get_queue, key, MODES[mode] | 01000);
        each_user(use_queue, key, id);
        tell("remove", msgctl(id, IPC_RMID, NULL));
    }
}

/* An object that was given away belongs to its maker, too. */
static void of_given_ones(void) {
    int id = made_by_alice(get_set, 0x5e90, 0600);
    struct semid_ds about = {0};
    union semun info = {.about = &about};
    semctl(id, 0, IPC_STAT, info);
    about.sem_perm.uid = BOB;
    about.sem_perm.gid = BOB;
    tell("give", semctl(id, 0, IPC_SET, info));
    each_user(use_set, 0x5e90, id);
}

static const char QUEUE[] = "/of-rights";

static void use_posix_queue(key_t key, int id) {
    put("read", mq_open(QUEUE, O_RDONLY));
    put("write", mq_open(QUEUE, O_WRONLY));
    put("both", mq_open(QUEUE, O_RDWR));
    put("make", mq_open(QUEUE, O_RDWR | O_CREAT, 0600, NULL));
    put("make a new one", mq_open(QUEUE, O_RDWR | O_CREAT | O_EXCL, 0600, NULL));
    if (geteuid() == BOB)
        put("unlink", mq_unlink(QUEUE));
}

static int get_posix_queue(key_t key, int mode) {
    umask(key);
    return mode ? mq_open(QUEUE, O_RDWR | O_CREAT | O_EXCL, mode & 0777, NULL) : 0;
}

static void of_posix_queues(void) {
    for (int mode = 0; mode < MODE_COUNT; mode++) {
        made_by_alice(get_posix_queue, 0, MODES[mode] | 01000);
        each_user(use_posix_queue, 0, 0);
        tell("unlink", mq_unlink(QUEUE));
    }
    made_by_alice(get_posix_queue, 027, 01777);
    each_user(use_posix_queue, 0, 0);
    fflush(stdout);
    if (fork() == 0) {
        of_owner();
        tell("its owner unlinks it", mq_unlink(QUEUE));
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
}

static void bind_to(const char *what, int kind, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int file = socket(AF_INET, kind, 0);
    tell(what, bind(file, (struct sockaddr *)&address, sizeof address));
    close(file);
}

static void of_ports(void) {
    bind_to("root", SOCK_STREAM, 1);
    bind_to("root, messages", SOCK_DGRAM, 1);
    as_alice();
    bind_to("1", SOCK_STREAM, 1);
    bind_to("1,023", SOCK_STREAM, 1023);
    bind_to("1, messages", SOCK_DGRAM, 1);
    bind_to("any", SOCK_STREAM, 0);
    bind_to("any, messages", SOCK_DGRAM, 0);
}

static void of_ranges(void) {
    int ends[2], file = open("file", O_CREAT | O_RDWR, 0600), place = open(".", O_RDONLY);
    if (pipe(ends) != 0)
        tell("pipe", -1);
    tell("a file", sync_file_range(file, 0, 0, 7));
    tell("a part", sync_file_range(file, 100, 200, SYNC_FILE_RANGE_WRITE));
    tell("a directory", sync_file_range(place, 0, 0, 0));
    tell("a pipe", sync_file_range(ends[0], 0, 0, 0));
    tell("nothing", sync_file_range(-1, 0, 0, 0));
    tell("unknown flags", sync_file_range(file, 0, 0, 8));
    tell("a negative offset", sync_file_range(file, -1, 5, 0));
    tell("a negative length", sync_file_range(file, 5, -1, 0));
    tell("too far", sync_file_range(file, INT64_MAX, 1, 0));
    tell("unknown flags of a pipe", sync_file_range(ends[0], 0, 0, 8));
}

static const struct part PARTS[] = {
    {"segments", of_segments}, {"sets", of_sets},   {"queues", of_queues},
    {"given ones", of_given_ones}, {"POSIX queues", of_posix_queues}, {"ports", of_ports}, {"ranges", of_ranges},
};

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    umask(0);
    run_parts("/tmp/of-ipc-rights", PARTS, sizeof PARTS / sizeof *PARTS);
    return 0;
}
