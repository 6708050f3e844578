// Uses its terminal as shells, editors and pagers do. A test types what it asks for by `type`, and compares all
// that is shown with what Linux shows.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

static struct termios usual;

// Asks the test for keys: it waits for this line.
static void type(const char *keys) {
    printf("type %s\n", keys);
}

static void show(const char *name, long got) {
    if (got < 0) printf("%s: error %d\n", name, errno);
    else printf("%s: %ld\n", name, got);
}

// Reads once, and shows the bytes.
static void show_read(size_t most) {
    unsigned char bytes[256];
    ssize_t got = read(0, bytes, most);
    show("read", got);
    for (ssize_t i = 0; i < got; i++) printf(" %02x", bytes[i]);
    printf("\n");
}

static void attributes(void) {
    show("isatty", isatty(0) && isatty(1) && isatty(2));
    if (tcgetattr(0, &usual) != 0) exit(2);
    printf("%o %o %o\n", usual.c_iflag, usual.c_oflag, usual.c_lflag);
    for (int i = 0; i < 17; i++) printf(" %d", usual.c_cc[i]);
    struct winsize size;
    show("size", ioctl(0, TIOCGWINSZ, &size));
    printf("%d %d\n", size.ws_row, size.ws_col);
    show("session", tcgetsid(0) == getsid(0));
    show("group", tcgetpgrp(0) == getpgrp());
    show("ttyname", ttyname(0) != NULL);
    int file = open("/dev/null", O_RDWR);
    show("null", tcgetpgrp(file));
    close(file);
}

static void lines(void) {
    type("ab\\x7fc\\n");
    show_read(100);
    type("one two\\x17x\\n");
    show_read(100);
    type("lost\\x15kept\\x16\\x03\\n");
    show_read(100);
    type("\\xc3\\xa4\\tb\\x7f\\x7f\\x7fz\\n");
    show_read(100);
    type("first\\nsecond\\n");
    for (int waiting = 0; waiting < 13;) ioctl(0, FIONREAD, &waiting);
    show_read(3);
    show_read(100);
    show_read(100);
    type("tail\\x04\\x04");
    show_read(100);
    show_read(100);
    type("again\\x12!\\n");
    show_read(100);
    type("\\r");
    show_read(100);
}

static void set(struct termios *to, int when) {
    show("tcsetattr", tcsetattr(0, when, to));
}

static void bytes_as_they_come(void) {
    struct termios raw = usual;
    raw.c_lflag &= ~(ICANON | ECHO | ISIG);
    raw.c_iflag &= ~(ICRNL | IXON);
    raw.c_cc[VMIN] = 3;
    raw.c_cc[VTIME] = 0;
    set(&raw, TCSANOW);
    type("x\\ry\\x03\\x04");
    show_read(3);
    show_read(2);
    raw.c_cc[VMIN] = 0;
    set(&raw, TCSANOW);
    show_read(10);
    raw.c_cc[VTIME] = 1;
    set(&raw, TCSANOW);
    show_read(10);
    raw.c_cc[VTIME] = 255;
    set(&raw, TCSANOW);
    type("now");
    show_read(1);
    struct pollfd waits = {0, POLLIN, 0};
    show("poll", poll(&waits, 1, -1));
    int waiting = 0;
    /* All of it, so that none comes after the flush. */
    while (waiting < 2)
        ioctl(0, FIONREAD, &waiting);
    show("FIONREAD", ioctl(0, FIONREAD, &waiting) + (waiting > 0));
    set(&usual, TCSAFLUSH);
    fcntl(0, F_SETFL, O_RDWR | O_NONBLOCK);
    show_read(10);
    fcntl(0, F_SETFL, O_RDWR);
}

static void wait_for_input(void) {
    struct pollfd waits = {0, POLLIN, 0};
    show("poll", poll(&waits, 1, -1));
}

// Bytes that are there when the attributes change, or when a call does not wait.
static void changes(void) {
    struct termios raw = usual;
    raw.c_lflag &= ~(ICANON | ECHO | ISIG);
    raw.c_cc[VMIN] = 3;
    raw.c_cc[VTIME] = 0;
    set(&raw, TCSANOW);
    fcntl(0, F_SETFL, O_RDWR | O_NONBLOCK);
    type("x");
    struct termios one = raw;
    one.c_cc[VMIN] = 1;
    set(&one, TCSANOW);
    wait_for_input();
    set(&raw, TCSANOW);
    show_read(10);
    raw.c_cc[VMIN] = 0;
    set(&raw, TCSANOW);
    show_read(10);
    fcntl(0, F_SETFL, O_RDWR);

    set(&one, TCSANOW);
    type("ab\\x04");
    for (int waiting = 0; waiting < 3;) ioctl(0, FIONREAD, &waiting);
    set(&usual, TCSANOW);
    show_read(10);
    type("\\x04");
    wait_for_input();
    int waiting = 7;
    ioctl(0, FIONREAD, &waiting);
    show("FIONREAD", waiting);
    show_read(10);
    type("cd\\x04");
    wait_for_input();
    set(&one, TCSANOW);
    show_read(10);

    // More than a terminal keeps.
    type("x{6000}");
    for (int waiting = 0; waiting < 4000;) ioctl(0, FIONREAD, &waiting);
    show("tcflush", tcflush(0, TCIFLUSH));
    type("!");
    for (char byte = 0; byte != '!';) {
        if (read(0, &byte, 1) != 1) exit(3);
    }
    set(&usual, TCSAFLUSH);
}

static void output(void) {
    struct termios other = usual;
    other.c_oflag = OPOST | TABDLY;
    set(&other, TCSADRAIN);
    printf("a\tb\r\n12345678\tc\r\n");
    other.c_oflag = OPOST | OCRNL | ONOCR;
    set(&other, TCSADRAIN);
    printf("x\ry");
    other.c_oflag = 0;
    set(&other, TCSADRAIN);
    printf("raw\tline\r\n");
    set(&usual, TCSADRAIN);
}

static volatile sig_atomic_t seen;
static void note(int signal) {
    seen = signal;
}

static void signals(void) {
    struct sigaction action = {.sa_handler = note};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGQUIT, &action, NULL);
    sigaction(SIGWINCH, &action, NULL);
    sigset_t both, none;
    sigemptyset(&none);
    sigemptyset(&both);
    sigaddset(&both, SIGINT);
    sigaddset(&both, SIGQUIT);
    sigprocmask(SIG_BLOCK, &both, NULL);
    struct pollfd waits = {0, POLLIN, 0};
    type("\\x03");
    show("ppoll", ppoll(&waits, 1, NULL, &none));
    show("seen", seen);
    type("\\x1c");
    show("ppoll", ppoll(&waits, 1, NULL, &none));
    show("seen", seen);
    sigprocmask(SIG_UNBLOCK, &both, NULL);
    struct winsize size = {11, 22, 0, 0};
    show("set size", ioctl(0, TIOCSWINSZ, &size));
    show("seen", seen);
    signal(SIGINT, SIG_IGN);
    type("\\x03ignored\\n");
    show_read(100);
}

// A child in a group of its own, in the foreground if `is_in_front`.
static pid_t begin_job(int is_in_front, void (*run)(void)) {
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        signal(SIGTTOU, SIG_IGN);
        if (is_in_front) tcsetpgrp(0, getpgrp());
        signal(SIGTTOU, SIG_DFL);
        run();
        exit(7);
    }
    setpgid(child, child);
    return child;
}

static int wait_for(pid_t child) {
    int status;
    if (waitpid(child, &status, WUNTRACED) != child) return -1;
    if (WIFSTOPPED(status)) printf("stopped by %d\n", WSTOPSIG(status));
    else if (WIFSIGNALED(status)) printf("killed by %d\n", WTERMSIG(status));
    else printf("exited with %d\n", WEXITSTATUS(status));
    return 0;
}

static void read_in_job(void) {
    type("\\x1a");
    show_read(100);
}

static void read_now(void) {
    show_read(100);
}

static void ignore_and_read(void) {
    signal(SIGTTIN, SIG_IGN);
    show_read(10);
}

static void write_now(void) {
    printf("written\n");
}

static void set_now(void) {
    set(&usual, TCSANOW);
}

static void come_back(void) {
    signal(SIGTTOU, SIG_IGN);
    show("tcsetpgrp", tcsetpgrp(0, getpgrp()));
    signal(SIGTTOU, SIG_DFL);
}

static void jobs(void) {
    signal(SIGINT, SIG_DFL);
    pid_t job = begin_job(1, read_in_job);
    wait_for(job);
    come_back();
    show("tcsetpgrp", tcsetpgrp(0, job));
    kill(-job, SIGCONT);
    type("for the job\\n");
    wait_for(job);
    come_back();

    job = begin_job(0, read_now);
    wait_for(job);
    show("tcsetpgrp", tcsetpgrp(0, job));
    type("in front\\n");
    kill(-job, SIGCONT);
    wait_for(job);
    come_back();

    wait_for(begin_job(0, ignore_and_read));
    wait_for(begin_job(0, write_now));
    job = begin_job(0, set_now);
    wait_for(job);
    kill(-job, SIGKILL);
    wait_for(job);
    struct termios stopping = usual;
    stopping.c_lflag |= TOSTOP;
    set(&stopping, TCSANOW);
    job = begin_job(0, write_now);
    wait_for(job);
    set(&usual, TCSANOW);
    kill(-job, SIGCONT);
    wait_for(job);
    show("of none", tcsetpgrp(0, 99999));
}

static void sessions(void) {
    pid_t child = fork();
    if (child == 0) {
        int file = open("/dev/tty", O_RDWR);
        show("/dev/tty", file >= 0);
        show("isatty", isatty(file));
        setsid();
        show("of another session", open("/dev/tty", O_RDWR));
        show("group", tcgetpgrp(0));
        show("write", write(file, "from afar\n", 10));
        exit(0);
    }
    wait_for(child);
}

static void flow(void) {
    type("\\x13\\x11on\\n");
    show_read(100);
    fcntl(1, F_SETFL, O_RDWR | O_NONBLOCK);
    tcflow(0, TCOOFF);
    ssize_t written = write(1, "lost\n", 5);
    tcflow(0, TCOON);
    fcntl(1, F_SETFL, O_RDWR);
    show("while stopped", written);
    // INTR starts the output again.
    signal(SIGINT, SIG_IGN);
    type("\\x13\\x03\\n");
    show_read(10);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    attributes();
    lines();
    bytes_as_they_come();
    changes();
    output();
    signals();
    jobs();
    sessions();
    flow();
    printf("the end\n");
    return 5;
}
