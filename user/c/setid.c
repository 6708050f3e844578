/* Set-id programs and those who look at them: tracers, readers of /proc, processes that share a directory,
 * owners and writers of their files. Prints what Linux prints for root. */
#define _GNU_SOURCE
#include <elf.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#include "users.h"

enum { TRACEME = 0, PEEK = 2, PEEK_REGISTER = 3, POKE = 5, CONT = 7, SEIZE = 0x4206, RIP = 128, ROUNDS = 400, ENDS = 60, CHANGES = 300, LOOKS = 20000 };

static long ask(long request, pid_t pid, long data) {
    return syscall(SYS_ptrace, request, pid, 0L, data);
}

static void run_program(const char *path, const char *what) {
    fflush(stdout);
    execl(path, "setid", what, NULL);
    tell("exec", -1);
    fflush(stdout);
    _exit(1);
}

/* Returns whether the program that runs is traced. */
static int is_traced(void) {
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    int tracer = 0;
    while (fgets(line, sizeof line, file))
        sscanf(line, "TracerPid: %d", &tracer);
    fclose(file);
    return tracer != 0;
}

static int death_signal(void) {
    int signal = -1;
    prctl(PR_GET_PDEATHSIG, &signal);
    return signal;
}

/* The program after an exec. */
static int executed(const char *what) {
    if (strcmp(what, "is traced") == 0)
        return is_traced() && geteuid() == BOB ? 3 : 0;
    if (strcmp(what, "wait") == 0) {
        char byte = 'x';
        return write(4, &byte, 1) != 1 || read(3, &byte, 1) != 1;
    }
    if (strcmp(what, "death") == 0)
        return death_signal() == 0 ? 0 : 5;
    if (strcmp(what, "personality") == 0) {
        printf("user %u, personality %x\n", geteuid(), personality(0xffffffff));
        return 0;
    }
    uid_t real, effective, saved;
    getresuid(&real, &effective, &saved);
    printf("users %u %u %u, secure: %lu, effective: %lu\n", real, effective, saved, getauxval(AT_SECURE), getauxval(AT_EUID));
    return 0;
}

static void follow(pid_t child) {
    int status;
    while (waitpid(child, &status, __WALL) == child && WIFSTOPPED(status))
        ask(CONT, child, WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status));
    printf("status: %x\n", status);
}

static void become_visible(void) {
    as_alice();
    prctl(PR_SET_DUMPABLE, 1);
}

/* A pipe whose ends are this descriptor and the next. */
static void make_pipe(int at) {
    int ends[2];
    if (pipe(ends) != 0)
        tell("pipe", -1);
    dup2(ends[0], 100);
    dup2(ends[1], 101);
    close(ends[0]);
    close(ends[1]);
    dup2(100, at);
    dup2(101, at + 1);
    close(100);
    close(101);
}

static void get_byte(int file) {
    char byte;
    if (read(file, &byte, 1) != 1)
        tell("read", -1);
}

static void put_byte(int file) {
    if (write(file, "x", 1) != 1)
        tell("write", -1);
}

/* Starts a child that becomes alice, and then executes when it is told. */
static pid_t start_waiting(const char *what) {
    make_pipe(10);
    make_pipe(12);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        become_visible();
        put_byte(13);
        get_byte(10);
        run_program("./bobs", what);
    }
    get_byte(12);
    return child;
}

static void of_tracers(void) {
    copy_program("bobs", BOB, BOB, 04755);
    pid_t child = start_waiting("ids");
    put_byte(11);
    follow(child);
    for (int by_root = 0; by_root < 2; by_root++) {
        fflush(stdout);
        child = fork();
        if (child == 0) {
            if (by_root)
                tell("as root", ask(TRACEME, 0, 0));
            as_alice();
            if (!by_root)
                tell("as alice", ask(TRACEME, 0, 0));
            run_program("./bobs", "ids");
        }
        follow(child);
    }
    child = start_waiting("ids");
    tell("root seizes", ask(SEIZE, child, 0));
    put_byte(11);
    follow(child);
    become_visible();
    child = start_waiting("ids");
    tell("alice seizes", ask(SEIZE, child, 0));
    put_byte(11);
    follow(child);
}

/* A program whose interpreter is `path`, which starts first. */
static void make_interpreted(const char *name, const char *path) {
    struct {
        Elf64_Ehdr head;
        Elf64_Phdr parts[2];
        char path[64];
    } file = {
        .head = {
            .e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
            .e_type = ET_DYN,
            .e_machine = EM_X86_64,
            .e_version = EV_CURRENT,
            .e_phoff = sizeof(Elf64_Ehdr),
            .e_ehsize = sizeof(Elf64_Ehdr),
            .e_phentsize = sizeof(Elf64_Phdr),
            .e_phnum = 2,
        },
        .parts = {
            {.p_type = PT_INTERP, .p_flags = PF_R, .p_align = 1, .p_offset = sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Phdr)},
            {.p_type = PT_LOAD, .p_flags = PF_R, .p_align = 4096, .p_filesz = sizeof file, .p_memsz = sizeof file},
        },
    };
    strcpy(file.path, path);
    file.parts[0].p_filesz = file.parts[0].p_memsz = strlen(path) + 1;
    make(name, 0, 0, 0755);
    int to = open(name, O_WRONLY);
    if (write(to, &file, sizeof file) != sizeof file)
        tell("write", -1);
    close(to);
}

/* Tries to read and write the memory of programs that are traced from their first instruction on. */
static void of_hidden_programs(void) {
    copy_program("readable", 0, 0, 0755);
    copy_program("secret", 0, 0, 0711);
    copy_program("bobs", BOB, BOB, 04755);
    make_interpreted("interpreted", "/tmp/of-set-ids/readable");
    make_interpreted("revealing", "/tmp/of-set-ids/secret");
    static const char *const PROGRAMS[] = {"./readable", "./secret", "./bobs", "./interpreted", "./revealing"};
    for (size_t index = 0; index < sizeof PROGRAMS / sizeof *PROGRAMS; index++)
        for (int by_root = 0; by_root < 2; by_root++) {
            fflush(stdout);
            pid_t child = fork();
            if (child == 0) {
                if (by_root)
                    ask(TRACEME, 0, 0);
                as_alice();
                if (!by_root)
                    ask(TRACEME, 0, 0);
                run_program(PROGRAMS[index], "death");
            }
            int status;
            long place = 0, word = 0;
            waitpid(child, &status, 0);
            syscall(SYS_ptrace, PEEK_REGISTER, child, RIP, &place);
            printf("%s, traced by %s, stopped: %d\n", PROGRAMS[index], by_root ? "root" : "alice", place != 0);
            tell("read", syscall(SYS_ptrace, PEEK, child, place, &word));
            tell("written", syscall(SYS_ptrace, POKE, child, place, word));
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
        }
}

static void *asks_for_a_death_signal(void *asks) {
    for (;;) {
        prctl(PR_SET_PDEATHSIG, SIGURG);
        *(volatile int *)asks = 1;
    }
    return NULL;
}

/* A program that gets rights gets no signal at the end of its parent. Another thread asks for it at any time
 * of the exec. */
static void of_death_signals(void) {
    copy_program("bobs", BOB, BOB, 04755);
    copy_program("plain", 0, 0, 0755);
    make("broken", BOB, BOB, 04755);
    int status, wrong = 0;
    for (int round = 0; round < ENDS; round++) {
        pid_t child = fork();
        if (child == 0) {
            pthread_t thread;
            volatile int asks = 0;
            as_alice();
            prctl(PR_SET_PDEATHSIG, SIGURG);
            pthread_create(&thread, NULL, asks_for_a_death_signal, (void *)&asks);
            while (!asks)
                sched_yield();
            execl("./bobs", "setid", "death", NULL);
            _exit(1);
        }
        waitpid(child, &status, 0);
        wrong += status != 0;
    }
    printf("with a signal that it did not ask for: %s\n", wrong ? "SOME" : "none");
    pid_t child = fork();
    if (child == 0) {
        as_alice();
        prctl(PR_SET_PDEATHSIG, SIGURG);
        execl("./broken", "setid", "death", NULL);
        tell("broken", -1);
        printf("kept: %d\n", death_signal() == SIGURG);
        run_program("./plain", "death");
    }
    waitpid(child, &status, 0);
    printf("plain: %x\n", status);
}

static void of_lesser_parents(void) {
    make_pipe(10);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        get_byte(10);
        tell("traced by a parent with fewer rights", ask(TRACEME, 0, 0));
        fflush(stdout);
        _exit(0);
    }
    as_alice();
    put_byte(11);
    follow(child);
}

/* Tracers come at any time of an exec: the program has another's rights, or is traced. */
static void of_racing_tracers(void) {
    copy_program("bobs", BOB, BOB, 04755);
    become_visible();
    int before = 0, after = 0, wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        pid_t child = fork();
        if (child == 0) {
            execl("./bobs", "setid", "is traced", NULL);
            _exit(1);
        }
        for (int turn = 0; turn < round * 7 % 1200; turn++)
            getppid();
        int status, is_mine = ask(SEIZE, child, 0) == 0;
        before += is_mine;
        after += !is_mine;
        while (waitpid(child, &status, __WALL) == child && WIFSTOPPED(status))
            ask(CONT, child, 0);
        wrong += status == 0x300;
    }
    printf("tried: %d, traced with another's rights: %s\n", before + after, wrong ? "SOME" : "none");
}

static void *waits(void *_) {
    pause();
    return NULL;
}

static void of_shared_directories(void) {
    copy_program("bobs", BOB, BOB, 04755);
    as_alice();
    for (int shares = 1; shares >= 0; shares--) {
        fflush(stdout);
        pid_t child = syscall(SYS_clone, (shares ? CLONE_FS : 0) | SIGCHLD, 0, 0, 0, 0);
        if (child == 0)
            run_program("./bobs", "ids");
        waitpid(child, NULL, 0);
    }
    /* Threads of the same process share it, too, and end. So do processes that have ended. */
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        pid_t sharer = syscall(SYS_clone, CLONE_FS | SIGCHLD, 0, 0, 0, 0);
        if (sharer == 0)
            _exit(0);
        waitpid(sharer, NULL, 0);
        pthread_create(&thread, NULL, waits, NULL);
        run_program("./bobs", "ids");
    }
    waitpid(child, NULL, 0);
    /* One that shares it hands it on to another process. */
    child = fork();
    if (child == 0) {
        make_pipe(10);
        pid_t sharer = syscall(SYS_clone, CLONE_FS | SIGCHLD, 0, 0, 0, 0);
        if (sharer == 0) {
            if (syscall(SYS_clone, CLONE_FS | SIGCHLD, 0, 0, 0, 0) == 0) {
                /* Until the program has ended. */
                char byte;
                close(11);
                _exit(read(10, &byte, 1) != 0);
            }
            _exit(0);
        }
        waitpid(sharer, NULL, 0);
        run_program("./bobs", "ids");
    }
    waitpid(child, NULL, 0);
}

static long open_of(pid_t pid, const char *name, int flags) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    return open(path, flags);
}

/* Prints whether a read gets anything. */
static void tell_read(const char *what, int file, long at) {
    static char text[1 << 14];
    long got = pread(file, text, sizeof text, at);
    printf("%s: %s\n", what, got < 0 ? strerror(errno) : got == 0 ? "nothing" : "TEXT");
}

static void tell_opened_again(const char *what, int file) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    int opened = open(path, O_RDONLY);
    printf("%s: %s\n", what, opened < 0 ? strerror(errno) : "OPENED");
}

/* Files about a process that then executes a set-id program. */
static void of_files_about_it(void) {
    copy_program("bobs", BOB, BOB, 04755);
    become_visible();
    make_pipe(3);
    int go = dup(4), told = dup(3);
    make_pipe(3);
    int ready = dup(3), tells = dup(4);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(told, 3);
        dup2(tells, 4);
        put_byte(4);
        get_byte(3);
        run_program("./bobs", "wait");
    }
    get_byte(ready);
    int maps = open_of(child, "maps", O_RDONLY), smaps = open_of(child, "smaps", O_RDONLY);
    int mem = open_of(child, "mem", O_RDONLY), pages = open_of(child, "pagemap", O_RDONLY);
    int auxv = open_of(child, "auxv", O_PATH), environment = open_of(child, "environ", O_PATH);
    int rollup = open_of(child, "smaps_rollup", O_PATH), files = open_of(child, "fd", O_RDONLY | O_DIRECTORY);
    printf("open: %d\n", maps > 0 && smaps > 0 && mem > 0 && pages > 0 && auxv > 0 && environment > 0 && rollup > 0 && files > 0);
    put_byte(go);
    get_byte(ready);
    tell_read("maps", maps, 0);
    tell_read("smaps", smaps, 0);
    tell_read("mem", mem, (long)&executed);
    tell_read("pagemap", pages, 0);
    tell_opened_again("auxv", auxv);
    tell_opened_again("environ", environment);
    tell_opened_again("smaps_rollup", rollup);
    char text[64];
    printf("a descriptor: %s\n", openat(files, "1", O_RDONLY) < 0 ? strerror(errno) : "OPENED");
    printf("its name: %s\n", readlinkat(files, "1", text, sizeof text) < 0 ? strerror(errno) : "TEXT");
    put_byte(go);
    follow(child);
}

static void of_owners(void) {
    umask(0);
    make("roots", BOB, CAROL, 02644);
    tell("root gives it away", chown("roots", ALICE, -1));
    tell_owner("roots");
    make("member", ALICE, CAROL, 02644);
    make("stranger", ALICE, BOB, 02644);
    make("program", ALICE, CAROL, 02654);
    as_alice();
    tell("member", chown("member", -1, ALICE));
    tell_owner("member");
    tell("stranger", chown("stranger", -1, ALICE));
    tell_owner("stranger");
    tell("program", chown("program", -1, ALICE));
    tell_owner("program");
}

/* An owner sets the set-user-id bit while the file changes owners. A change that began before the new owner
 * has ended when the owner has made two more. */
static void of_racing_owners(void) {
    enum { SETTERS = 2 };
    volatile unsigned *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t setters[SETTERS];
    make("file", ALICE, ALICE, 0755);
    for (int setter = 0; setter < SETTERS; setter++) {
        setters[setter] = fork();
        if (setters[setter] == 0) {
            as_alice();
            for (;; made[setter * 16]++)
                chmod("file", 04755), sched_yield();
        }
    }
    int wrong = 0;
    for (int change = 0; change < CHANGES; change++) {
        struct stat stat;
        chown("file", BOB, BOB);
        for (int setter = 0; setter < SETTERS; setter++)
            for (unsigned before = made[setter * 16]; made[setter * 16] - before < 2;)
                sched_yield();
        lstat("file", &stat);
        wrong += (stat.st_mode & S_ISUID) != 0;
        chown("file", ALICE, ALICE);
    }
    for (int setter = 0; setter < SETTERS; setter++) {
        kill(setters[setter], SIGKILL);
        waitpid(setters[setter], NULL, 0);
    }
    printf("set by another owner: %s\n", wrong ? "SOME" : "none");
}

enum { NOTHING, EMPTY_WRITE, WRITE, AT, TRUNCATE, FTRUNCATE, ON_OPEN, APPEND, SEND, CHANGE_KINDS };
static const char *const CHANGE_NAMES[] = {"nothing", "empty write", "write", "pwrite", "truncate", "ftruncate", "O_TRUNC", "append", "sendfile"};

static void change(const char *path, int kind) {
    int file = open(path, kind == ON_OPEN ? O_WRONLY | O_TRUNC : kind == APPEND ? O_WRONLY | O_APPEND : O_WRONLY);
    int source = open("source", O_RDONLY);
    long result = 0;
    switch (kind) {
    case EMPTY_WRITE: result = write(file, "x", 0); break;
    case WRITE: case APPEND: result = write(file, "x", 1); break;
    case AT: result = pwrite(file, "x", 1, 5); break;
    case TRUNCATE: result = truncate(path, 2); break;
    case FTRUNCATE: result = ftruncate(file, 2); break;
    case SEND: result = sendfile(file, source, NULL, 1); break;
    }
    if (result < 0)
        tell(CHANGE_NAMES[kind], result);
    close(file);
    close(source);
}

static void tell_modes(const char *who) {
    static const mode_t MODES[] = {06777, 04666, 02666, 02676, 0755};
    for (int kind = 0; kind < CHANGE_KINDS; kind++) {
        printf("%s, %s:", who, CHANGE_NAMES[kind]);
        for (size_t index = 0; index < sizeof MODES / sizeof *MODES; index++)
            for (gid_t group = BOB; group <= CAROL; group++) {
                char path[64];
                struct stat stat;
                snprintf(path, sizeof path, "%o %u %d", MODES[index], group, kind);
                change(path, kind);
                lstat(path, &stat);
                printf(" %o", stat.st_mode & 07777);
            }
        printf("\n");
    }
}

static void of_writers(void) {
    static const mode_t MODES[] = {06777, 04666, 02666, 02676, 0755};
    umask(0);
    for (int kind = 0; kind < CHANGE_KINDS; kind++)
        for (size_t index = 0; index < sizeof MODES / sizeof *MODES; index++)
            for (gid_t group = BOB; group <= CAROL; group++) {
                char path[64];
                snprintf(path, sizeof path, "%o %u %d", MODES[index], group, kind);
                make(path, ALICE, group, MODES[index]);
            }
    make("source", 0, 0, 0644);
    int source = open("source", O_WRONLY);
    put_byte(source);
    tell_modes("root");
    as_alice();
    tell_modes("alice");
}

/* Another process asks for the capabilities of one that calls `access`, which looks with those of its real
 * user. */
static void of_access(void) {
    make("hers", ALICE, ALICE, 0600);
    make_pipe(10);
    pid_t caller = fork();
    if (caller == 0) {
        set3(SYS_setresuid, ALICE, 0, 0);
        put_byte(11);
        for (;;)
            if (access("hers", R_OK) != 0)
                _exit(1);
    }
    get_byte(10);
    int wrong = 0;
    for (int look = 0; look < LOOKS; look++) {
        struct header header = {0x20080522, caller};
        struct sets sets[2] = {0};
        syscall(SYS_capget, &header, sets);
        wrong += sets[0].effective == 0;
    }
    kill(caller, SIGKILL);
    int status;
    waitpid(caller, &status, 0);
    printf("%s, other rights seen: %s\n", status == SIGKILL ? "found" : "NOT FOUND", wrong ? "SOME" : "none");
}

static void of_children(void) {
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    make_pipe(10);
    pid_t child = fork();
    if (child == 0) {
        set3(SYS_setresuid, ALICE, BOB, CAROL);
        raise(SIGSTOP);
        get_byte(10);
        _exit(5);
    }
    for (int kind = 0; kind < 3; kind++) {
        static const int EVENTS[] = {WSTOPPED, WCONTINUED, WEXITED};
        memset(&info, 0, sizeof info);
        waitid(P_PID, child, &info, EVENTS[kind] | WNOWAIT);
        printf("waitid: %d %u\n", info.si_code, info.si_uid);
        sigwaitinfo(&set, &info);
        printf("SIGCHLD: %d %u\n", info.si_code, info.si_uid);
        waitid(P_PID, child, &info, EVENTS[kind]);
        if (kind == 0)
            kill(child, SIGCONT);
        else if (kind == 1)
            put_byte(11);
    }
}

static int in_thread;

static void *as_another(void *_) {
    set3(SYS_setresuid, ALICE, ALICE, ALICE);
    in_thread = syscall(SYS_gettid);
    put_byte(11);
    pause();
    return NULL;
}

static void of_threads(void) {
    make_pipe(10);
    make_pipe(12);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, as_another, NULL);
        get_byte(10);
        if (write(13, &in_thread, sizeof in_thread) != sizeof in_thread)
            _exit(1);
        pause();
    }
    int tid;
    if (read(12, &tid, sizeof tid) != sizeof tid)
        tell("read", -1);
    fflush(stdout);
    pid_t alice = fork();
    if (alice == 0) {
        void *head;
        size_t len;
        as_alice();
        tell("the first thread", syscall(SYS_tgkill, child, child, 0));
        tell("its own", syscall(SYS_tgkill, child, tid, 0));
        tell("no thread", syscall(SYS_tgkill, child, 1, 0));
        tell("SIGURG to the first", syscall(SYS_tkill, child, SIGURG));
        tell("SIGURG to its own", syscall(SYS_tkill, tid, SIGURG));
        tell("the process", kill(child, 0));
        tell("robust list", syscall(SYS_get_robust_list, child, &head, &len));
        tell("robust list of its own", syscall(SYS_get_robust_list, tid, &head, &len));
        tell("robust list of none", syscall(SYS_get_robust_list, 1 << 30, &head, &len));
        tell("robust list of itself", syscall(SYS_get_robust_list, 0, &head, &len));
        fflush(stdout);
        _exit(0);
    }
    waitpid(alice, NULL, 0);
    void *head;
    size_t len;
    tell("robust list for root", syscall(SYS_get_robust_list, child, &head, &len));
    tell("robust list to nowhere", syscall(SYS_get_robust_list, child, 8, &len));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* A process that executes a program of another user does not choose where that lies. */
static void of_places(void) {
    copy_program("bobs", BOB, BOB, 04755);
    copy_program("plain", BOB, BOB, 0755);
    for (int by_alice = 0; by_alice < 2; by_alice++)
        for (int is_plain = 0; is_plain < 2; is_plain++) {
            fflush(stdout);
            pid_t child = fork();
            if (child == 0) {
                if (by_alice)
                    as_alice();
                tell("personality", personality(ADDR_NO_RANDOMIZE | ADDR_COMPAT_LAYOUT | MMAP_PAGE_ZERO | UNAME26));
                run_program(is_plain ? "./plain" : "./bobs", "personality");
            }
            follow(child);
        }
}

static const struct part PARTS[] = {
    {"tracers", of_tracers},
    {"lesser parents", of_lesser_parents},
    {"racing tracers", of_racing_tracers},
    {"hidden programs", of_hidden_programs},
    {"death signals", of_death_signals},
    {"shared directories", of_shared_directories},
    {"files about it", of_files_about_it},
    {"owners", of_owners},
    {"racing owners", of_racing_owners},
    {"writers", of_writers},
    {"access", of_access},
    {"children", of_children},
    {"threads", of_threads},
    {"places", of_places},
};

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count > 1)
        return executed(words[1]);
    run_parts("/tmp/of-set-ids", PARTS, sizeof PARTS / sizeof *PARTS);
    return 0;
}
