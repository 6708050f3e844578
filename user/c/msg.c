/* SysV messages: sending and receiving by types, waiting, signals, removal, limits. Prints what every Linux
 * prints. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ipc.h"

#ifndef MSG_COPY
#define MSG_COPY 040000
#endif

#ifndef MSG_EXCEPT
#define MSG_EXCEPT 020000
#endif
#ifndef MSG_STAT_ANY
#define MSG_STAT_ANY 13
#endif

struct message {
    long type;
    char text[9000];
};

static key_t key;
static int answers;

static int send(int id, long type, const char *text, int flags)
{
    struct message message = { .type = type };
    strcpy(message.text, text);
    return msgsnd(id, &message, strlen(text), flags);
}

static void receive(const char *what, int id, long type, size_t room, int flags)
{
    struct message message = { .type = -7 };
    long got = msgrcv(id, &message, room, type, flags);
    if (got < 0)
        tell(what, got);
    else
        printf("%s: %ld, type %ld, %.*s\n", what, got, message.type, (int)got, message.text);
}

static void show(const char *what, int id)
{
    struct msqid_ds now;
    if (msgctl(id, IPC_STAT, &now) < 0)
        tell(what, -1);
    else
        printf("%s: %lu messages, %lu bytes of %lu, sender %d, receiver %d, times %d %d %d\n", what, (long)now.msg_qnum,
               (long)now.__msg_cbytes, (long)now.msg_qbytes, now.msg_lspid == getpid(), now.msg_lrpid == getpid(),
               now.msg_stime != 0, now.msg_rtime != 0, now.msg_ctime != 0);
}

static void getting(void)
{
    tell("no such key", msgget(key, 0));
    int id = msgget(key, IPC_CREAT | 0640);
    say("made", id >= 0 && msgget(key, 0) == id && msgget(key, IPC_CREAT) == id);
    tell("exclusive", msgget(key, IPC_CREAT | IPC_EXCL));
    show("new", id);
    struct msqid_ds now;
    msgctl(id, IPC_STAT, &now);
    printf("key %d, mode %o\n", now.msg_perm.__key == key, now.msg_perm.mode);
    now.msg_perm.mode = 0606;
    now.msg_qbytes = 100;
    tell("set", msgctl(id, IPC_SET, &now));
    msgctl(id, IPC_STAT, &now);
    printf("mode %o, %lu\n", now.msg_perm.mode, (long)now.msg_qbytes);
    tell("a bad address", syscall(SYS_msgctl, id, IPC_STAT, 8));
    tell("a bad address", syscall(SYS_msgctl, id, IPC_SET, 8));
    tell("a bad command", msgctl(id, 99, &now));
    tell("a bad queue", msgctl(-1, IPC_STAT, &now));
    tell("remove", msgctl(id, IPC_RMID, 0));
    tell("remove again", msgctl(id, IPC_RMID, 0));
    tell("send", send(id, 1, "lost", 0));
    receive("receive", id, 0, 10, 0);
}

static void choosing(void)
{
    int id = msgget(IPC_PRIVATE, 0600);
    send(id, 5, "five", 0);
    send(id, 3, "three", 0);
    send(id, 4, "four", 0);
    send(id, 3, "three again", 0);
    send(id, 9, "", 0);
    show("five", id);
    receive("the first", id, 0, 100, 0);
    receive("type 4", id, 4, 100, 0);
    receive("no type 5", id, 5, 100, IPC_NOWAIT);
    receive("not type 3", id, 3, 100, MSG_EXCEPT);
    receive("up to 2", id, -2, 100, IPC_NOWAIT);
    receive("up to 8", id, -8, 3, 0);
    receive("up to 8, cut", id, -8, 3, MSG_NOERROR);
    receive("no room", id, 3, 0, MSG_NOERROR);
    show("none", id);
    receive("none", id, 0, 10, IPC_NOWAIT);
    send(id, 7, "seven", 0);
    send(id, 6, "six", 0);
    receive("the lowest", id, -(~0UL >> 1) - 1, 10, 0);
    receive("the rest", id, -100, 10, 0);
    tell("type 0", send(id, 0, "x", 0));
    tell("type below 0", send(id, -1, "x", 0));
    struct message large = { .type = 1 };
    tell("too long", msgsnd(id, &large, 8193, 0));
    tell("a negative length", msgsnd(id, &large, -1, 0));
    tell("the longest", msgsnd(id, &large, 8192, 0));
    tell("and again", msgsnd(id, &large, 8192, 0));
    tell("no room", msgsnd(id, &large, 1, IPC_NOWAIT));
    tell("an empty one", msgsnd(id, &large, 0, IPC_NOWAIT));
    tell("a negative room", msgrcv(id, &large, -1, 0, 0));
    tell("a bad address", syscall(SYS_msgsnd, id, 8, 1, 0));
    tell("it stays", syscall(SYS_msgrcv, id, &large, 10, 0, 0));
    tell("a bad address", syscall(SYS_msgrcv, id, 8, 9000, 0, 0));
    show("it is lost", id);
    tell("a bad queue", msgrcv(-1, &large, 10, 0, 0));
    tell("remove", msgctl(id, IPC_RMID, 0));
    receive("gone", id, 0, 10, 0);
}

static void take_two(int id)
{
    receive("type 2", id, 2, 100, 0);
    send(answers, 1, "", 0);
}

static void take_short(int id)
{
    receive("short", id, 0, 3, 0);
    send(answers, 1, "", 0);
}

static void send_more(int id)
{
    tell("sent", send(id, 8, "more", 0));
    send(answers, 1, "", 0);
}

static void waiting(void)
{
    struct message large = { .type = 1 };
    answers = msgget(IPC_PRIVATE, 0600);
    int id = msgget(IPC_PRIVATE, 0600);
    pid_t two = start_child(take_two, id);
    await(two);
    send(id, 1, "one", 0);
    send(id, 2, "two", 0);
    long stolen = msgrcv(id, &large, 10, 2, IPC_NOWAIT);
    int error = errno;
    finish(two);
    errno = error;
    tell("it was for the child", stolen);
    show("the other", id);
    receive("one", id, 0, 10, 0);
    pid_t brief = start_child(take_short, id);
    await(brief);
    send(id, 1, "longer", 0);
    finish(brief);
    show("it stays", id);
    receive("longer", id, 0, 10, 0);
    msgsnd(id, &large, 8192, 0);
    msgsnd(id, &large, 8190, 0);
    pid_t sender = start_child(send_more, id);
    await(sender);
    show("full", id);
    msgrcv(id, &large, 8192, 0, 0);
    finish(sender);
    show("with more", id);
    receive("more", id, 8, 10, 0);
    two = start_child(take_two, id);
    await(two);
    msgctl(id, IPC_RMID, 0);
    finish(two);
    id = msgget(IPC_PRIVATE, 0600);
    struct msqid_ds now;
    msgctl(id, IPC_STAT, &now);
    now.msg_qbytes = 8192;
    msgctl(id, IPC_SET, &now);
    large.type = 1;
    msgsnd(id, &large, 8192, 0);
    sender = start_child(send_more, id);
    await(sender);
    now.msg_qbytes = 8197;
    int more = msgctl(id, IPC_SET, &now);
    finish(sender);
    tell("more room", more);
    sender = start_child(send_more, id);
    await(sender);
    msgctl(id, IPC_RMID, 0);
    finish(sender);
    msgctl(answers, IPC_RMID, 0);
}

static void nothing(int signal)
{
    (void)signal;
}

static void be_interrupted(int id)
{
    struct sigaction action = { .sa_handler = nothing, .sa_flags = SA_RESTART };
    sigaction(SIGUSR1, &action, 0);
    receive("interrupted", id, 1, 10, 0);
    fflush(stdout);
    send(answers, 1, "", 0);
    receive("killed", id, 1, 10, 0);
}

static void interrupting(void)
{
    struct message message;
    int id = msgget(IPC_PRIVATE, 0600);
    answers = msgget(IPC_PRIVATE, 0600);
    pid_t pid = start_child(be_interrupted, id);
    await(pid);
    kill(pid, SIGUSR1);
    msgrcv(answers, &message, 10, 0, 0);
    await(pid);
    kill(pid, SIGKILL);
    int status;
    waitpid(pid, &status, 0);
    send(id, 1, "for none", 0);
    show("killed", id);
    msgctl(id, IPC_RMID, 0);
    msgctl(answers, IPC_RMID, 0);
}

static void receive_one(int id)
{
    receive("stopped meanwhile", id, 5, 10, 0);
}

/* A call that waits goes on after a stop, since no handler runs. */
static void stopping(void)
{
    struct message large = { .type = 1 };
    int id = msgget(IPC_PRIVATE, 0600);
    answers = msgget(IPC_PRIVATE, 0600);
    for (int way = 0; way < 2; way++) {
        if (way == 1)
            for (int i = 0; i < 2; i++)
                msgsnd(id, &large, 8192, 0);
        pid_t pid = start_child(way ? send_more : receive_one, id);
        await(pid);
        kill(pid, SIGSTOP);
        await_state(pid, 'T');
        kill(pid, SIGCONT);
        await(pid);
        if (way == 0)
            send(id, 5, "five", 0);
        else
            msgrcv(id, &large, 8192, 1, 0);
        finish(pid);
    }
    show("stopped", id);
    msgctl(id, IPC_RMID, 0);
    msgctl(answers, IPC_RMID, 0);
}

static void refusing(void)
{
    struct message message = { .type = 1 };
    int id = msgget(IPC_PRIVATE, 0600);
    send(id, 1, "a longer one", 0);
    tell("a copy that is cut", msgrcv(id, &message, 5, 0, MSG_COPY | IPC_NOWAIT | MSG_NOERROR));
    tell("a copy to a bad address", syscall(SYS_msgrcv, id, 8, 5, 7, MSG_COPY | IPC_NOWAIT));
    struct msqid_ds now;
    msgctl(id, IPC_STAT, &now);
    now.msg_perm.uid = -1;
    tell("no user", msgctl(id, IPC_SET, &now));
    msgctl(id, IPC_RMID, 0);
}

enum { MESSAGES = 400 };

static void answer(int id)
{
    struct message message;
    for (int i = 0; i < MESSAGES; i++) {
        if (msgrcv(id, &message, 100, 1, 0) != 4)
            puts("WRONG");
        message.type = 2;
        ++*(int *)message.text;
        msgsnd(id, &message, 4, 0);
    }
}

static void talking(void)
{
    int id = msgget(IPC_PRIVATE, 0600), all[3] = { 0 };
    struct message message;
    pid_t children[3];
    for (int i = 0; i < 3; i++)
        children[i] = start_child(answer, id);
    for (int i = 0; i < 3 * MESSAGES; i++) {
        message.type = 1;
        *(int *)message.text = i;
        msgsnd(id, &message, 4, 0);
        msgrcv(id, &message, 100, 2, 0);
        all[0] += *(int *)message.text == i + 1;
    }
    for (int i = 0; i < 3; i++)
        finish(children[i]);
    printf("%d right answers\n", all[0]);
    show("all said", id);
    msgctl(id, IPC_RMID, 0);
}

static int ask(int command, void *into)
{
    return msgctl(0, command, into);
}

static void listing(void)
{
    int id = msgget(IPC_PRIVATE, 0600);
    send(id, 1, "1234567", 0);
    send(id, 1, "1234567", 0);
    say("listed", count_listed("/proc/sysvipc/msg", id, 14, 2));
    struct msginfo most, all;
    int highest = highest_index(ask, MSG_INFO, &all, IPC_INFO, &most);
    say("an index", highest >= 0);
    printf("%d %d %d\n", most.msgmni, most.msgmax, most.msgmnb);
    say("counted", all.msgpool >= 1 && all.msgmap >= 2 && all.msgtql >= 14);
    int found = 0;
    for (int at = 0; at <= highest; at++) {
        struct msqid_ds now;
        if (msgctl(at, MSG_STAT, &now) == id)
            found += now.msg_qnum == 2;
        if (msgctl(at, MSG_STAT_ANY, &now) == id)
            found++;
    }
    printf("found %d\n", found);
    msgctl(id, IPC_RMID, 0);
    say("listed", count_listed("/proc/sysvipc/msg", id, 14, 2));
}

int main(void)
{
    key = 0x53000000 + getpid();
    getting();
    choosing();
    waiting();
    interrupting();
    stopping();
    refusing();
    talking();
    listing();
    return 0;
}
