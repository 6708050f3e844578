// Rules of processes: what a program finds when it starts, and starting others.
#include "rule.h"

#include <elf.h>
#include <link.h>
#include <sys/auxv.h>

extern char **environ;
extern const char program_start[] __asm__("__executable_start");
extern const char program_end[] __asm__("end");

static int is_in_program(unsigned long address) {
    return address >= (unsigned long)program_start && address < (unsigned long)program_end;
}

static void the_auxiliary_vector_is_the_programs(void) {
    SAY("%d %d ", is_in_program(getauxval(AT_PHDR)), is_in_program(getauxval(AT_ENTRY)));
    SAY("%lu %lu ", getauxval(AT_PHENT), getauxval(AT_PAGESZ));
    const ElfW(Ehdr) *header = (const void *)program_start;
    SAY("%d ", getauxval(AT_PHNUM) == header->e_phnum);
    SAY("%d %d ", getauxval(AT_RANDOM) != 0, getauxval(AT_SECURE) == 0);
    SAY("%s\n", strrchr((char *)getauxval(AT_EXECFN), '/'));
}

static void the_auxiliary_vector_is_in_proc(void) {
    unsigned long words[128] = {0}, wrong = 0;
    int file = open("/proc/self/auxv", O_RDONLY);
    NEED(read(file, words, sizeof words) > 0 && close(file) == 0);
    for (int i = 0; words[i] != AT_NULL; i += 2) {
        int is_changed = words[i] == AT_PHDR || words[i] == AT_PHNUM || words[i] == AT_BASE || words[i] == AT_ENTRY;
        wrong += is_changed && words[i + 1] != getauxval(words[i]);
    }
    SAY("%lu\n", wrong);
}

static void the_stack_is_aligned(void) {
    // The number of arguments lies right below the first one's address, at the stack pointer of the start.
    extern char **__libc_argv __attribute__((weak));
    SAY("%d\n", &__libc_argv == NULL || (uintptr_t)(__libc_argv - 1) % 16 == 0);
}

static void the_process_has_the_programs_name(void) {
    char text[300] = "", name[16] = "";
    ssize_t length = readlink("/proc/self/exe", text, sizeof text - 1);
    NEED(length > 0);
    SAY("%s ", strrchr(text, '/'));
    SAY("%d ", (int)readlink("/proc/self/exe", text, 3));
    char by_number[40];
    snprintf(by_number, sizeof by_number, "/proc/%d/exe", getpid());
    memset(text, 0, sizeof text);
    NEED(readlink(by_number, text, sizeof text - 1) == length);
    SAY("%s ", strrchr(text, '/'));
    prctl(PR_GET_NAME, name);
    SAY("%s\n", name);
    struct stat opened, named;
    int file = open("/proc/self/exe", O_RDONLY);
    NEED(fstat(file, &opened) == 0 && stat(text, &named) == 0);
    SAY("%d\n", opened.st_ino == named.st_ino);
}

static void the_command_line_is_the_programs(void) {
    char text[4000];
    int file = open("/proc/self/cmdline", O_RDONLY);
    ssize_t length = read(file, text, sizeof text - 1);
    NEED(length > 0 && text[length - 1] == 0);
    for (ssize_t i = 0; i < length; i++) {
        if (text[i] == 0) text[i] = ' ';
    }
    text[length] = 0;
    SAY("%s\n", text);
}

static void say_execution(const char *what, const char *path, char *const *arguments, char *const *environment) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execve(path, arguments, environment);
        SAY("%s: errno %d\n", what, errno);
        fflush(stdout);
        _exit(60);
    }
    say_end(what, child);
}

static void programs_are_executed(void) {
    char *few[] = {"other-name", "-c", "echo $0 $#: $A $B; cat /proc/self/comm", NULL};
    char *environment[] = {"A=one", "B=two", NULL};
    say_execution("a shell", "/bin/sh", few, environment);
    char *none[] = {NULL};
    say_execution("no environment", "/bin/sh", few, none);
    static char *many[3003];
    many[0] = "sh";
    many[1] = "-c";
    many[2] = "echo $#";
    for (int i = 3; i < 3002; i++) many[i] = "word";
    say_execution("many arguments", "/bin/sh", many, environ);
    char *missing[] = {"missing", NULL};
    say_execution("missing", "/no/such/program", missing, environ);
    say_execution("a folder", "/tmp", missing, environ);
    say_execution("no program", "/etc/passwd", missing, environ);
}

static char made[8][64];
static int count_made;

// Makes a file with these bytes and rights, and returns its path.
static char *make_file(const char *content, mode_t rights) {
    char *path = made[count_made++];
    strcpy(path, "/tmp/rule-XXXXXX");
    int file = mkstemp(path);
    NEED(file >= 0 && write(file, content, strlen(content)) == (ssize_t)strlen(content));
    NEED(fchmod(file, rights) == 0 && close(file) == 0);
    return path;
}

static void scripts_are_executed(void) {
    char *arguments[] = {"script", "first", "second", NULL};
    char *plain = make_file("#!/bin/sh\necho plain $# $1 ${2%%/rule-*}\n", 0755);
    say_execution("a script", plain, arguments, environ);
    char *with = make_file("#! /bin/sh  -e -u \necho with an argument\n", 0755);
    say_execution("a script with an argument", with, arguments, environ);
    char line[100];
    snprintf(line, sizeof line, "#!%s of a script\n", plain);
    say_execution("a script of a script", make_file(line, 0755), arguments, environ);
    say_execution("a script of nothing", make_file("#!/no/such/interpreter\n", 0755), arguments, environ);
    say_execution("an empty file", make_file("", 0755), arguments, environ);
    say_execution("not executable", make_file("#!/bin/sh\necho never\n", 0644), arguments, environ);
    for (int i = 0; i < count_made; i++) unlink(made[i]);
}

// Makes a program of no instructions with an interpreter.
static char *make_program(const char *interpreter) {
    struct {
        Elf64_Ehdr head;
        Elf64_Phdr parts[2];
        char path[64];
    } image = {
        .head = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                 .e_type = ET_DYN, .e_machine = EM_X86_64, .e_version = EV_CURRENT, .e_phoff = sizeof image.head,
                 .e_ehsize = sizeof image.head, .e_phentsize = sizeof image.parts[0], .e_phnum = 2},
        .parts = {{.p_type = PT_INTERP, .p_flags = PF_R, .p_offset = sizeof image - sizeof image.path,
                   .p_filesz = strlen(interpreter) + 1},
                  {.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = sizeof image, .p_memsz = sizeof image,
                   .p_align = page}},
    };
    strcpy(image.path, interpreter);
    char *path = make_file("", 0755);
    int file = open(path, O_WRONLY);
    NEED(file >= 0 && write(file, &image, sizeof image) == sizeof image && close(file) == 0);
    return path;
}

static void interpreters_are_looked_at_before(void) {
    char *arguments[] = {"program", NULL};
    char *text = make_file("This is no program, and longer than the head of one, which has sixty-four bytes.\n", 0755);
    char *others[] = {make_file("", 0755), make_file("#!/bin/sh\necho never\n", 0644)};
    say_execution("a folder", make_program("/tmp"), arguments, environ);
    say_execution("a text", make_program(text), arguments, environ);
    say_execution("nothing", make_program(others[0]), arguments, environ);
    say_execution("not executable", make_program(others[1]), arguments, environ);
    say_execution("missing", make_program("/no/such/interpreter"), arguments, environ);
    for (int i = 0; i < count_made; i++) unlink(made[i]);
}

static void a_descriptor_is_executed(void) {
    int file = open("/bin/sh", O_RDONLY | O_CLOEXEC);
    char *arguments[] = {"sh", "-c", "echo by descriptor", NULL};
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        fexecve(file, arguments, environ);
        _exit(61);
    }
    say_end("a descriptor", child);
}

static void descriptors_are_kept_and_closed(void) {
    int kept = open("/dev/null", O_RDONLY), closed = open("/dev/null", O_RDONLY | O_CLOEXEC);
    char command[100];
    snprintf(command, sizeof command, "test -e /proc/self/fd/%d; echo $?; test -e /proc/self/fd/%d; echo $?", kept, closed);
    fflush(stdout);
    NEED(system(command) == 0);
    fflush(stdout);
    NEED(system("ls /proc/self/fd | wc -l") == 0);
}

static void programs_are_spawned(void) {
    char *arguments[] = {"sh", "-c", "echo spawned; exit 5", NULL};
    pid_t child;
    fflush(stdout);
    NEED(posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ) == 0);
    say_end("the spawned", child);
    SAY("%d\n", posix_spawn(&child, "/no/such/program", NULL, NULL, arguments, environ) == ENOENT);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    NEED(posix_spawnp(&child, "sh", &actions, &attributes, arguments, environ) == 0);
    say_end("the silent", child);
    signal(SIGSEGV, SIG_DFL);
    SAY("%d\n", signal(SIGSEGV, SIG_DFL) == SIG_DFL);
}

static void ignored_signals_stay_ignored(void) {
    signal(SIGUSR1, SIG_IGN);
    signal(SIGUSR2, exit);
    fflush(stdout);
    NEED(system("kill -USR1 $$; echo survived; kill -USR2 $$; echo not reached") != 0);
}

static volatile int written;
static void a_vfork_child_shares_memory(void) {
    static volatile int status, i;
    for (i = 0; i < 20; i++) {
        pid_t child = vfork();
        if (child == 0) {
            written++;
            char *arguments[] = {"true", NULL};
            if (i % 2) execv("/bin/true", arguments);
            _exit(3);
        }
        int one;
        NEED(waitpid(child, &one, 0) == child);
        status += WEXITSTATUS(one);
    }
    SAY("%d %d\n", written, status);
}

static int nested(int depth) {
    if (depth == 0) return 1;
    pid_t child = fork();
    if (child == 0) _exit(nested(depth - 1) + 1);
    int status;
    NEED(waitpid(child, &status, 0) == child);
    return WEXITSTATUS(status);
}

static void children_have_children(void) {
    SAY("%d\n", nested(6));
}

static int in_clone(void *unused) {
    written = 9;
    return unused == NULL ? 4 : 5;
}

static void clone_shares_as_it_is_told(void) {
    static char stack[64 << 10] __attribute__((aligned(16)));
    int flags[] = {SIGCHLD, CLONE_VM | SIGCHLD, CLONE_VM | CLONE_VFORK | SIGCHLD, CLONE_VM | CLONE_FS | CLONE_FILES | SIGCHLD};
    for (int i = 0; i < 4; i++) {
        written = 0;
        pid_t child = clone(in_clone, stack + sizeof stack, flags[i], NULL);
        NEED(child > 0);
        say_end("the clone", child);
        SAY("%d\n", written);
    }
}

static void clone3_makes_children(void) {
    struct {
        uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
    } arguments = {.exit_signal = SIGCHLD};
    long child = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (child == 0) _exit(31);
    NEED(child > 0);
    say_end("the clone", child);
    SAY_CALL(syscall(SYS_clone3, &arguments, 8));
    SAY_CALL(syscall(SYS_clone3, (void *)8, sizeof arguments));
}

static void a_session_is_made(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(setsid() == getpid() && getpgid(0) == getpid());
    say_end("the leader", child);
}

// Makes more calls than the runtime waits for before it rewrites code.
static void have_code_rewritten(void) {
    for (int i = 0; i < 700; i++) syscall(SYS_getppid);
}

// Numbers are set by short instructions, so only the padding behind has room for a jump.
void make_two_calls(long *first, long *second);
long make_a_call(void);
extern unsigned char padding[];
long run_through_padding(void);
unsigned long keep_a_number(void);
extern unsigned char second_page[];
__asm__(".text\n.p2align 6\n.globl make_two_calls\n.type make_two_calls, @function\nmake_two_calls:\n.cfi_startproc\n"
        "mov %rdi, %r8\nmov %rsi, %r9\nxor %eax, %eax\nmov $39, %al\nsyscall\nmov %rax, (%r8)\n"
        "xor %eax, %eax\nmov $110, %al\nsyscall\nmov %rax, (%r9)\nret\n.cfi_endproc\n.p2align 6, 0x90\n"
        "before_call:\n.cfi_startproc\nret\n.cfi_endproc\n"
        ".globl make_a_call\n.type make_a_call, @function\nmake_a_call:\n.cfi_startproc\n"
        "xor %eax, %eax\nmov $39, %al\nsyscall\nret\n.cfi_endproc\n.globl padding\npadding:\n.p2align 6, 0x90\n"
        "behind_padding:\n.cfi_startproc\nret\n.cfi_endproc\n"
        // The second one runs through the padding behind it.
        ".globl make_another\nmake_another:\n.cfi_startproc\n"
        "xor %eax, %eax\nmov $39, %al\nsyscall\nret\n.globl run_through_padding\n"
        ".type run_through_padding, @function\nrun_through_padding:\nmov %rdi, %rax\n.cfi_endproc\n"
        ".p2align 6, 0x90\n.cfi_startproc\nmov $7, %al\nmovzbl %al, %eax\nret\n.cfi_endproc\n"
        // The number's last five bytes, which begin the second page, are an instruction themselves.
        ".p2align 12\n.fill 4096 - 5, 1, 0xcc\n.globl keep_a_number\n.type keep_a_number, @function\nkeep_a_number:\n"
        ".cfi_startproc\nmovabs $0x27b8010203, %rdx\n.globl second_page\n.set second_page, keep_a_number + 5\n"
        "xor %eax, %eax\nmov $39, %al\nsyscall\nmov %rdx, %rax\nret\n.cfi_endproc\n.p2align 12\n");

static void two_calls_beside_one_padding_stay(void) {
    long first = 0, second = 0;
    have_code_rewritten();
    make_two_calls(&first, &second);
    SAY("%d %d\n", first == getpid(), second == getppid());
}

static void code_in_padding_stays(void) {
    const unsigned char code[] = {0xb8, 42, 0, 0, 0, 0xc3};
    unsigned char *at = padding - (uintptr_t)padding % page;
    NEED(mprotect(at, 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    memcpy(padding, code, sizeof code);
    NEED(mprotect(at, 2 * page, PROT_READ | PROT_EXEC) == 0);
    have_code_rewritten();
    SAY("%d\n", ((int (*)(void))(void *)padding)());
}

static void padding_that_is_run_through_stays(void) {
    have_code_rewritten();
    SAY("%ld\n", run_through_padding());
}

static void an_instruction_on_two_mappings_stays(void) {
    NEED(mprotect(second_page, page, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    have_code_rewritten();
    SAY("%lx\n", keep_a_number());
}

static void exit_handlers_run(void) {
    SAY("last words follow\n");
    fflush(stdout);
    NEED(atexit((void (*)(void))(void *)abort) == 0);
    prctl(PR_SET_DUMPABLE, 0);
}

// A barrier of one process needs one that has registered, by any of its threads.
static void *ask_for_barrier(void *unused) {
    const int barrier = 8;
    SAY_CALL(syscall(SYS_membarrier, barrier, 0, 0));
    SAY_CALL(syscall(SYS_membarrier, barrier, 2, 0));
    return unused;
}

static void *register_for_barriers(void *unused) {
    const int registration = 16;
    SAY_CALL(syscall(SYS_membarrier, registration, 2, 0));
    ask_for_barrier(unused);
    SAY_CALL(syscall(SYS_membarrier, registration, 0, 0));
    return unused;
}

static void barriers_need_a_registration(void) {
    ask_for_barrier(NULL);
    finish(start(ask_for_barrier, NULL));
    finish(start(register_for_barriers, NULL));
    ask_for_barrier(NULL);
    finish(start(ask_for_barrier, NULL));
    fflush(stdout);
    pid_t child = fork();
    NEED(child >= 0);
    if (child == 0) {
        ask_for_barrier(NULL);
        fflush(stdout);
        _exit(0);
    }
    say_end("the child", child);
}

// Whichever thread registers, and whenever a thread was made, the registration is each one's.
enum { BARRIER = 8, REGISTRATION = 16, BARRIER_OF_CODE = 32, REGISTRATION_FOR_CODE = 64, REGISTRATIONS = 512 };
static sem_t may_say;

static void *say_registrations(void *unused) {
    SAY_CALL(syscall(SYS_membarrier, REGISTRATIONS, 0, 0));
    return unused;
}

static void *say_registrations_later(void *unused) {
    while (sem_wait(&may_say) != 0) NEED(errno == EINTR);
    return say_registrations(unused);
}

static void *register_for_code(void *unused) {
    SAY_CALL(syscall(SYS_membarrier, BARRIER_OF_CODE, 0, 0));
    SAY_CALL(syscall(SYS_membarrier, REGISTRATION_FOR_CODE, 0, 0));
    SAY_CALL(syscall(SYS_membarrier, BARRIER_OF_CODE, 0, 0));
    return unused;
}

static void registrations_are_the_processes(void) {
    NEED(sem_init(&may_say, 0, 0) == 0);
    pthread_t before = start(say_registrations_later, NULL);
    finish(start(register_for_code, NULL));
    SAY_CALL(syscall(SYS_membarrier, REGISTRATION, 0, 0));
    sem_post(&may_say);
    finish(before);
    finish(start(say_registrations, NULL));
    say_registrations(NULL);
    SAY_CALL(syscall(SYS_membarrier, 0, 1, 0));
    SAY_CALL(syscall(SYS_membarrier, REGISTRATIONS, 1, 0));
    SAY_CALL(syscall(SYS_membarrier, 3, 0, 0));
}

// Of two threads that each write their word and then read the other's, one sees what the other has written, if
// one makes a barrier in between. Without it the other's write may still wait for the lines that it has written
// before, and that this thread had. Of 20,000 rounds without barriers most ended so.
enum { ROUNDS = 4000, LINES = 56, AREA = 1 << 14 };
static struct {
    volatile int word;
    char rest[60];
} area[AREA], one, another, turns[2];
static int seen_by_one[ROUNDS + 1], seen_by_another[ROUNDS + 1];

static void stay_on(int nth) {
    cpu_set_t all, set;
    NEED(sched_getaffinity(0, sizeof all, &all) == 0);
    CPU_ZERO(&set);
    for (int cpu = 0, left = nth % CPU_COUNT(&all); cpu < CPU_SETSIZE && CPU_COUNT(&set) == 0; cpu++) {
        if (CPU_ISSET(cpu, &all) && left-- == 0) CPU_SET(cpu, &set);
    }
    NEED(sched_setaffinity(0, sizeof set, &set) == 0);
}

static void choose(int *lines, unsigned *seed) {
    for (int i = 0; i < LINES; i++) lines[i] = (int)(next_random(seed) % AREA);
}

static void meet(int own, int round) {
    __atomic_store_n(&turns[own].word, round, __ATOMIC_SEQ_CST);
    for (int i = 0; turns[!own].word < round; i++) {
        if (i > 1000) sched_yield();
    }
}

static void *write_and_read(void *unused) {
    unsigned seed = 1;
    int lines[LINES];
    for (int round = 1; round <= ROUNDS; round++) {
        choose(lines, &seed);
        meet(0, round);
        for (int i = 0; i < LINES; i++) area[lines[i]].word = round;
        one.word = round;
        seen_by_one[round] = another.word;
    }
    return unused;
}

static void *stay_and_write(void *unused) {
    stay_on(1);
    return write_and_read(unused);
}

static void barriers_reach_all_threads(void) {
    unsigned seed = 1;
    int lines[LINES];
    SAY_CALL(syscall(SYS_membarrier, REGISTRATION_FOR_CODE, 0, 0));
    pthread_t thread = start(stay_and_write, NULL);
    SAY_CALL(syscall(SYS_membarrier, REGISTRATION, 0, 0));
    stay_on(0);
    for (int round = 1; round <= ROUNDS; round++) {
        choose(lines, &seed);
        for (int i = 0; i < LINES; i++) area[lines[i]].word = 0;
        meet(1, round);
        for (volatile int i = 0; i < round % 300; i++) continue;
        another.word = round;
        NEED(syscall(SYS_membarrier, round % 2 ? BARRIER : BARRIER_OF_CODE, 0, 0) == 0);
        seen_by_another[round] = one.word;
    }
    finish(thread);
    int unseen = 0;
    for (int round = 1; round <= ROUNDS; round++) {
        unseen += seen_by_one[round] < round && seen_by_another[round] < round;
    }
    SAY("%d unseen\n", unseen);
}

// Limits, the group and the session are the program's, whichever thread changes them.
static sem_t begun, may_look;
static volatile pid_t looker;
static void look(void) {
    struct rlimit files, cores;
    NEED(getrlimit(RLIMIT_NOFILE, &files) == 0 && getrlimit(RLIMIT_CORE, &cores) == 0);
    SAY("%ld %ld %d %d %d %d %d\n", (long)files.rlim_cur, (long)cores.rlim_cur, getpgrp() == getpid(),
        getpgid(0) == getpid(), getpgid(getpid()) == getpid(), getpgid(gettid()) == getpid(), getsid(0) == getpid());
}

static void *look_when_asked(void *unused) {
    looker = gettid();
    sem_post(&begun);
    while (sem_wait(&may_look) != 0) NEED(errno == EINTR);
    look();
    return unused;
}

static void *run_call(void *call) {
    ((void (*)(void))call)();
    return NULL;
}

// Has a thread change something, and all others look.
static void see_change(void (*change)(void), int is_first) {
    int status;
    NEED(sem_init(&begun, 0, 0) == 0 && sem_init(&may_look, 0, 0) == 0);
    pthread_t thread = start(look_when_asked, NULL);
    while (sem_wait(&begun) != 0) NEED(errno == EINTR);
    if (is_first) change();
    if (!is_first) finish(start(run_call, change));
    look();
    sem_post(&may_look);
    finish(thread);
    finish(start(run_call, look));
    fflush(stdout);
    pid_t child = fork();
    NEED(child >= 0);
    if (child == 0) {
        struct rlimit files;
        NEED(getrlimit(RLIMIT_NOFILE, &files) == 0);
        SAY("%ld %d %d\n", (long)files.rlim_cur, getpgrp() == getppid(), getsid(0) == getppid());
        fflush(stdout);
        _exit(0);
    }
    NEED(waitpid(child, &status, 0) == child);
}

static void in_child(void (*change)(void)) {
    for (int is_first = 0; is_first < 2; is_first++) {
        fflush(stdout);
        pid_t child = fork();
        NEED(child >= 0);
        if (child == 0) {
            struct rlimit limit = {.rlim_cur = 200, .rlim_max = 1000};
            NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
            limit = (struct rlimit){0};
            NEED(setrlimit(RLIMIT_CORE, &limit) == 0);
            see_change(change, is_first);
            fflush(stdout);
            _exit(0);
        }
        say_end("the child", child);
    }
}

static void set_limits(void) {
    struct rlimit limit = {.rlim_cur = 150, .rlim_max = 1000}, old;
    SAY_CALL(setrlimit(RLIMIT_NOFILE, &limit));
    limit = (struct rlimit){0};
    SAY_CALL(syscall(SYS_prlimit64, looker, RLIMIT_CORE, &limit, NULL));
    limit = (struct rlimit){.rlim_cur = 120, .rlim_max = 1000};
    SAY_CALL(syscall(SYS_prlimit64, looker, RLIMIT_NOFILE, &limit, &old));
    SAY("%ld %ld\n", (long)old.rlim_cur, (long)old.rlim_max);
    SAY_CALL(syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, (void *)8));
    SAY_CALL(syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, (void *)8, NULL));
    SAY_CALL(syscall(SYS_setrlimit, RLIMIT_NOFILE, NULL));
    SAY_CALL(syscall(SYS_setrlimit, 77, &limit));
    limit = (struct rlimit){.rlim_cur = 120, .rlim_max = 100};
    SAY_CALL(syscall(SYS_setrlimit, RLIMIT_NOFILE, &limit));
}

static void limits_are_the_processes(void) {
    in_child(set_limits);
}

static void begin_group(void) {
    SAY_CALL(setpgid(0, 0));
    SAY_CALL(setpgid(getpid(), getpid()));
    SAY_CALL(setpgid(0, getppid() + 1000000));
}

static void the_group_is_the_processes(void) {
    in_child(begin_group);
}

static void begin_session(void) {
    SAY("%d ", setsid() == getpid());
    SAY_CALL(setsid());
    SAY_CALL(setpgid(0, 0));
}

static void the_session_is_the_processes(void) {
    in_child(begin_session);
}

// A child of `vfork` changes its own group, session and limits, and sees them.
static volatile long seen[6];

static void a_vfork_child_has_a_group_and_limits_of_its_own(void) {
    pid_t own_group = getpgrp(), own_session = getsid(0), child = vfork();
    if (child == 0) {
        seen[0] = setpgid(0, 0);
        seen[1] = getpgrp() == getpid() && getpgid(0) == getpid() && getpgid(getppid()) == own_group;
        _exit(0);
    }
    say_end("the first", child);
    child = vfork();
    if (child == 0) {
        seen[2] = setsid() == getpid();
        seen[3] = getsid(0) == getpid() && getpgrp() == getpid() && getsid(getppid()) == own_session;
        _exit(0);
    }
    say_end("the second", child);
    child = vfork();
    if (child == 0) {
        struct rlimit limit = {.rlim_cur = page, .rlim_max = page};
        seen[4] = setrlimit(RLIMIT_DATA, &limit);
        seen[5] = getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur == page;
        _exit(0);
    }
    say_end("the third", child);
    for (int i = 0; i < 6; i++) SAY("%ld ", seen[i]);
    struct rlimit limit;
    NEED(getrlimit(RLIMIT_DATA, &limit) == 0);
    SAY("%d %d\n", limit.rlim_cur == page, getpgrp() == own_group && getsid(0) == own_session);
    for (int i = 0; i < 2; i++) {
        SAY("%d\n", mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    }
}

static void programs_are_executed_within_any_limit(void) {
    static const struct {
        int kind;
        rlim_t most;
    } limits[] = {{RLIMIT_DATA, 4000 << 10}, {RLIMIT_DATA, 9000 << 10}, {RLIMIT_NOFILE, 4},
                  {RLIMIT_NOFILE, 5},        {RLIMIT_NOFILE, 7},        {RLIMIT_AS, 40 << 20}};
    char *words[] = {"sh", "-c", "echo executed", NULL};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            NEED(setrlimit(limits[i].kind, &(struct rlimit){limits[i].most, limits[i].most}) == 0);
            execv("/bin/sh", words);
            _exit(60);
        }
        say_end("the limited", child);
    }
}

// What is no file of bytes is not executed, and nothing waits for one that writes to it.
static void a_pipe_is_not_executed(void) {
    char path[] = "/tmp/rule-XXXXXX", *words[] = {path, NULL};
    NEED(close(mkstemp(path)) == 0 && unlink(path) == 0);
    NEED(mkfifo(path, 0755) == 0 && chmod(path, 0755) == 0);
    SAY_CALL(execv(path, words));
    NEED(unlink(path) == 0);
}

RULES(RULE(a_vfork_child_has_a_group_and_limits_of_its_own), RULE(a_pipe_is_not_executed), RULE(programs_are_executed_within_any_limit), RULE(barriers_need_a_registration), RULE(registrations_are_the_processes), RULE(barriers_reach_all_threads), RULE(limits_are_the_processes), RULE(the_group_is_the_processes), RULE(the_session_is_the_processes),
      RULE(the_auxiliary_vector_is_the_programs), RULE(the_auxiliary_vector_is_in_proc), RULE(the_stack_is_aligned), RULE(the_process_has_the_programs_name),
      RULE(the_command_line_is_the_programs), RULE(programs_are_executed), RULE(scripts_are_executed), RULE(interpreters_are_looked_at_before),
      RULE(a_descriptor_is_executed), RULE(descriptors_are_kept_and_closed), RULE(programs_are_spawned),
      RULE(ignored_signals_stay_ignored), RULE(a_vfork_child_shares_memory), RULE(children_have_children),
      RULE(clone_shares_as_it_is_told), RULE(clone3_makes_children), RULE(a_session_is_made),
      RULE(two_calls_beside_one_padding_stay), RULE(code_in_padding_stays), RULE(padding_that_is_run_through_stays),
      RULE(an_instruction_on_two_mappings_stays),
      RULE(exit_handlers_run))
