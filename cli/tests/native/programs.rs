//! Programs of the distribution print the same as without the runtime. Those that are not installed are
//! skipped.

use std::path::Path;

use super::{WAYS, in_way, see};

/// Lines that compress and sort well.
fn sample() -> String {
    (0..60_000_u64).map(|number| format!("{} line {number}\n", number * 7919 % 60_013)).collect()
}

fn is_installed(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

/// Runs a shell's line in each way: the shell, and by it all that it starts. The file `sample` lies beside.
#[allow(clippy::disallowed_macros)] // a test's own words
fn compare(program: &str, line: &str) {
    if !is_installed(program) {
        println!("skipped: {program} is not installed here");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("sample"), sample()).unwrap();
    let [plain, pool, strict] = WAYS.map(|way| run(way, line, folder.path()));
    assert_eq!(plain.status, Some(0), "{plain:?}");
    assert_eq!(plain, pool, "{program} with the pool");
    assert_eq!(plain, strict, "{program} strictly");
    assert_eq!(plain, run(&["--isolate"], line, folder.path()), "{program} isolated");
}

fn run(way: &[&str], line: &str, folder: &Path) -> super::Seen {
    let mut command = in_way(way, "sh");
    command.args(["-e", "-c", line]).current_dir(folder);
    see(command)
}

#[test]
fn sort() {
    compare("sort", "sort --parallel=3 -S 1M -n sample | cksum");
}

#[test]
fn xz() {
    compare("xz", "xz -T3 --block-size=100KiB -c sample > packed; xz -T3 -dc packed | cksum");
}

#[test]
fn zstd() {
    compare("zstd", "zstd -T3 -19 -qc sample | zstd -dqc | cksum");
}

#[test]
fn pigz() {
    compare("pigz", "pigz -p 3 -c sample | pigz -dc | cksum");
}

#[test]
fn seven_zip() {
    compare("7z", "7z a -mmt=3 packed.7z sample > list; 7z x -so packed.7z | cksum; rm packed.7z");
}

#[test]
fn lbzip2() {
    compare("lbzip2", "lbzip2 -n 3 -c sample | lbzip2 -dc | cksum");
}

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
