//! Interpreters, compilers and virtual machines, and what is built by them. The output of the programs in
//! `sources` does not depend on the order in which their threads run.

use std::path::Path;
use std::process::Command;

use super::{compare, compare_with};
use crate::skipped::skip;

#[test]
fn perl() {
    compare(
        "perl",
        r#"perl -e 'my %h; open F, "sample"; while (<F>) { $h{length $_}++ } print "$_ $h{$_}\n" for sort keys %h; print `echo child`'"#,
    );
}

#[test]
fn compiler() {
    compare("gcc", "echo 'int main() { return 0; }' > a.c; gcc -O2 -o a a.c; ./a; echo $?");
}

#[test]
fn make() {
    compare("make", "printf 'all: a b\\na b:\\n\\t@echo $@\\n' > Makefile; make -s -j3 | sort");
}

#[test]
fn node() {
    compare(
        "node",
        "node -e 'const {Worker}=require(\"worker_threads\"); let n=0; for (let i=0;i<3;i++) new Worker(\"require(\\\"worker_threads\\\").parentPort.postMessage(1)\",{eval:true}).on(\"message\",()=>{if(++n==3)console.log(n)})'",
    );
}

#[test]
fn java() {
    compare("java", "java -version 2>&1 | cksum");
}

/// Each child is started by a thread of a pool, and another thread waits for it.
#[test]
fn java_starts_processes() {
    let program = r#"import java.io.*;
import java.util.*;
import java.util.concurrent.*;

public class P {
    static int run(int number) throws Exception {
        String command = "echo child " + number + "; exit " + number % 5;
        Process child = new ProcessBuilder("sh", "-c", command).start();
        String line;
        try (BufferedReader text = new BufferedReader(new InputStreamReader(child.getInputStream()))) {
            line = text.readLine();
        }
        byte[][] kept = new byte[100][];
        for (int i = 0; i < 1000; i++) kept[i % 100] = new byte[5000];
        return child.waitFor() * 1000 + Integer.parseInt(line.substring(6));
    }

    public static void main(String[] words) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(4);
        List<Future<Integer>> results = new ArrayList<>();
        for (int i = 0; i < 16; i++) {
            int number = i;
            results.add(threads.submit(() -> run(number)));
        }
        int sum = 0;
        for (Future<Integer> result : results) sum += result.get();
        threads.shutdown();
        System.out.println(sum);
    }
}
"#;
    compare("javac", &format!("cat > P.java <<'END'\n{program}END\njavac P.java\njava -cp . P"));
}

#[test]
fn go() {
    let program = r#"package main

import (
    "fmt"
    "os"
    "os/exec"
    "os/signal"
    "runtime"
    "sync"
    "syscall"
)

func main() {
    var group sync.WaitGroup
    var lock sync.Mutex
    sum := 0
    for i := 0; i < 40; i++ {
        group.Add(1)
        go func(i int) {
            defer group.Done()
            kept := map[int][]byte{}
            for k := 0; k < 1000; k++ {
                kept[k%100] = make([]byte, 1000+k)
            }
            out, _ := exec.Command("echo", "child").Output()
            lock.Lock()
            defer lock.Unlock()
            sum += len(kept) + i + len(out)
        }(i)
    }
    group.Wait()
    runtime.GC()
    signals := make(chan os.Signal, 1)
    signal.Notify(signals, syscall.SIGUSR1)
    syscall.Kill(os.Getpid(), syscall.SIGUSR1)
    fmt.Println(sum, <-signals)
    defer func() { fmt.Println(recover() != nil) }()
    var nowhere *int
    *nowhere = 1
}
"#;
    compare("go", &format!("cat > m.go <<'END'\n{program}END\nGO111MODULE=off go build -o m m.go\n./m"));
}

#[test]
fn python() {
    let script = "
import threading, subprocess, os, signal, hashlib, queue, sys, mmap, tempfile
from concurrent.futures import ThreadPoolExecutor, ProcessPoolExecutor
def work(i):
    m = mmap.mmap(-1, 65536)
    m[:5] = b'hello'
    data = bytes(m[:5]) * 20000
    return i, hashlib.sha256(data * (i + 1)).hexdigest()
def main():
    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(work, range(20)): print(result)
    with ProcessPoolExecutor(2) as pool:
        for result in pool.map(work, range(4)): print(result)
    print([subprocess.run(['sh', '-c', f'exit {i}']).returncode for i in range(5)])
    print(subprocess.check_output(['cat'], input=b'x' * 200000) == b'x' * 200000)
    got = []
    signal.signal(signal.SIGUSR1, lambda *_: got.append(1))
    os.kill(os.getpid(), signal.SIGUSR1)
    print(got, os.path.basename(os.readlink('/proc/self/exe')) == os.path.basename(os.path.realpath(sys.executable)))
    q = queue.Queue()
    threads = [threading.Thread(target=lambda: [q.put(i) for i in range(500)]) for _ in range(4)]
    for t in threads: t.start()
    for t in threads: t.join()
    print(q.qsize())
if __name__ == '__main__': main()
";
    compare("python3", &format!("cat > script.py <<'END'\n{script}END\npython3 script.py"));
}

const NODE: &str = include_str!("sources/workers.js");
const JAVA: &str = include_str!("sources/Pressure.java");
const CPP: &str = include_str!("sources/threads.cpp");
const OPENMP: &str = include_str!("sources/openmp.c");
const RUST: &str = include_str!("sources/threads.rs");

/// Workers wait for each other at shared memory.
#[test]
fn node_shares_memory() {
    compare_with("node", &[("workers.js", NODE)], "node workers.js");
}

/// The collector's threads move objects that other threads use, and compilers make code meanwhile.
#[test]
fn java_collects_garbage() {
    let line = "javac Pressure.java\njava -XX:+UseParallelGC -Xmx128m -cp . Pressure";
    compare_with("javac", &[("Pressure.java", JAVA)], line);
}

#[test]
fn threads_of_cpp() {
    let line = "g++ -O2 -Wall -Wextra -Werror -std=c++17 -pthread -o threads threads.cpp\n./threads";
    compare_with("g++", &[("threads.cpp", CPP)], line);
}

#[test]
fn openmp() {
    let line = "gcc -O2 -Wall -Wextra -Werror -fopenmp -o openmp openmp.c\n./openmp";
    compare_with("gcc", &[("openmp.c", OPENMP)], line);
}

#[test]
fn threads_of_rust() {
    let line = "rustc --edition 2024 -O -Dwarnings -o threads threads.rs\n./threads";
    compare_with("rustc", &[("threads.rs", RUST)], line);
}

/// Linked statically with musl, which makes system calls in its own way.
#[test]
fn threads_of_rust_with_musl() {
    const TARGET: &str = "x86_64-unknown-linux-musl";
    let seen = Command::new("rustc").args(["--target", TARGET, "--print=target-libdir"]).output();
    if !seen.is_ok_and(|seen| Path::new(String::from_utf8_lossy(&seen.stdout).trim()).is_dir()) {
        return skip(&format!("the target {TARGET} is not installed here"));
    }
    let line = format!("rustc --edition 2024 -O --target {TARGET} -o threads threads.rs\n./threads");
    compare_with("rustc", &[("threads.rs", RUST)], &line);
}
