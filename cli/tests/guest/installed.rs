//! Installed programs do real work, with the same output in the guest as on this machine.

use std::path::Path;

use crate::harness::{here, run};
use crate::skipped::skip;

/// Returns whether this machine has all of these programs. Says which one it lacks.
fn has(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    let missing = programs.iter().find(|name| !is_there(name));
    missing.inspect(|name| skip(&format!("{name} is not installed here"))).is_none()
}

/// Runs a script of bash here and in a guest with this number of CPUs, unless this machine lacks one of the
/// programs. The script ends at the first command that fails. It begins in a folder of its own, its home.
fn same(programs: &[&str], cpus: &str, script: &str) {
    if !has(programs) {
        return;
    }
    let folder = "set -e; export HOME=$(mktemp -d); trap 'rm -rf \"$HOME\"' EXIT; cd \"$HOME\"";
    let script = format!("{folder}\n{script}");
    let words = ["/bin/bash", "-c", &script];
    let (expected, status) = here(&words, b"");
    assert_eq!(status, Some(0), "on this machine");
    let run = run(&["-c", cpus, "-m", "2G"], &words);
    assert_eq!((run.status, run.text()), (0, String::from_utf8_lossy(&expected).into_owned()), "{run:?}");
}

/// Two processes write to one database, which they lock.
#[test]
fn sqlite_locks_a_file_between_processes() {
    let script = r#"
        sqlite3 a.db "create table t(k integer primary key, v text); create index x on t(v);
            with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
            insert into t select i, 'value ' || (i * 7919 % 20011) from n;"
        write() { for i in {1..10}; do sqlite3 -cmd '.timeout 600000' a.db "begin immediate;
            update t set v = v || '$1' where k = 10 * $i + $2; insert into t(v) values('$1 $i'); commit;"; done; }
        write a 0 & first=$!; write b 1 & wait $first; wait $!
        sqlite3 a.db "select count(*), sum(length(v)) from t; pragma integrity_check;
            select v from t where k > 20000 order by v limit 3; select v from t where v like '%a' or v like '%b';""#;
    same(&["sqlite3"], "2", script);
}

/// Tools find the file systems and the limits in `/proc`.
#[test]
fn tools_find_file_systems_and_limits() {
    let script = r#"
        export LC_ALL=C
        df -P / | awk 'NR == 1 { print $1, $6, $7 } NR == 2 { print $6 }'
        ulimit -s 4096; ulimit -n 200; sed -n -E '/stack|open/ s/ +/ /gp' /proc/self/limits
        prlimit --noheadings --output RESOURCE,SOFT,HARD --nofile --core=0 --pid $$ 2>&1"#;
    same(&["df", "awk", "prlimit"], "1", script);
}

/// Several compilers run at once, and times of files say what is to be done.
#[test]
fn make_builds_what_has_changed() {
    let script = r#"
        for i in {1..6}; do echo "int f$i(int x) { return x * $i; }" > f$i.c; done
        echo '#include <stdio.h>
            int f1(int), f6(int);
            int main(void) { printf("%d\n", f1(2) + f6(7)); return 0; }' > main.c
        printf 'prog: main.o f1.o f2.o f3.o f4.o f5.o f6.o\n\t$(CC) -o $@ $^\n%%.o: %%.c\n\t$(CC) -O1 -c -o $@ $<\n' > Makefile
        make -s -j4; ./prog; make -q; echo 'up to date'; touch -d 2001-01-01 prog; make -q || make -n | wc -l"#;
    same(&["make", "gcc"], "2", script);
}

/// A repository is made, cloned, checked, packed and merged.
#[test]
fn git_clones_checks_and_merges() {
    let script = r#"
        export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
        git config --global user.name name; git config --global user.email name@example.org
        git init -q one -b main; cd one
        for i in {1..5}; do seq $((i * 100)) > f$i; git add .; git commit -qm "change $i"; done; cd ..
        git clone -q one two; cd two; git fsck --full --no-progress; git log --oneline; git repack -adq
        git checkout -qb other HEAD~2; ls; git merge -q main; git status --short; git grep -c 77"#;
    same(&["git"], "2", script);
}

/// Threads, processes and tasks that talk by sockets.
#[test]
fn python_has_threads_processes_and_sockets() {
    let script = r#"
python3 - <<'END'
import threading, subprocess, asyncio, socket, hashlib, multiprocessing, sqlite3, zlib, tempfile, os
box=[]; lock=threading.Lock()
def work(n):
    h=hashlib.sha256()
    for i in range(300): h.update(b'%d'%(i*n))
    with lock: box.append((n,h.hexdigest()[:8]))
ts=[threading.Thread(target=work,args=(n,)) for n in range(8)]
[t.start() for t in ts]; [t.join() for t in ts]; print(sorted(box))
print(subprocess.run(['sh','-c','cat; exit 3'],input=b'text',capture_output=True))
async def main():
    async def serve(r,w):
        while (l:=await r.readline()): w.write(l.upper()); await w.drain()
        w.close()
    s=await asyncio.start_server(serve,'127.0.0.1',0); port=s.sockets[0].getsockname()[1]
    async def client(i):
        r,w=await asyncio.open_connection('127.0.0.1',port)
        out=[]
        for k in range(20):
            w.write(b'line %d %d\n'%(i,k)); out.append(await r.readline())
        w.close(); return len(out), out[-1]
    print(await asyncio.gather(*[client(i) for i in range(10)]))
    s.close()
asyncio.run(main())
def sq(x): return x*x
if __name__=='__main__':
    with multiprocessing.get_context('fork').Pool(3) as p: print(p.map(sq,range(10)))
END"#;
    same(&["python3"], "2", script);
}

/// Archives of all kinds are packed and unpacked by several threads, and sorted.
#[test]
fn archives_are_packed_and_unpacked() {
    let script = r#"
        seq 200000 > a
        xz -T4 -1 -k a; xz -dc a.xz | cksum; zstd -q -T4 -k a; zstd -qdc a.zst | cksum
        gzip -k a; gunzip -c a.gz | cksum; bzip2 -k a; bunzip2 -c a.bz2 | cksum
        sort --parallel=4 -rn a | head -n 3; split -n l/4 a p; wc -l p*; tar cf - p* | tar tf -"#;
    same(&["xz", "zstd", "gzip", "bzip2"], "4", script);
}

/// Workers, a server with its clients, and libraries of the runtime.
#[test]
fn node_has_workers_and_a_server() {
    let script = r#"
node -e '
const {Worker,isMainThread}=require("worker_threads"); const http=require("http"), fs=require("fs"), zlib=require("zlib"), crypto=require("crypto");
const src="const {parentPort,workerData}=require(\"worker_threads\"); let s=0; for(let i=0;i<1e5;i++) s+=i*workerData; parentPort.postMessage(s)";
(async()=>{
 const all=await Promise.all([1,2,3].map(n=>new Promise((ok,no)=>{const w=new Worker(src,{eval:true,workerData:n}); w.on("message",ok); w.on("error",no)})));
 console.log(all);
 const s=http.createServer((q,r)=>r.end("hello "+q.url)); await new Promise(ok=>s.listen(0,"127.0.0.1",ok));
 const get=p=>new Promise(ok=>http.get({port:s.address().port,host:"127.0.0.1",path:p},r=>{let t="";r.on("data",d=>t+=d);r.on("end",()=>ok(t))}));
 console.log(await Promise.all(["/a","/b","/c"].map(get))); s.close();
 console.log(zlib.gunzipSync(zlib.gzipSync(Buffer.alloc(100000,7))).length, crypto.createHash("sha1").update("x").digest("hex"));
})();'"#;
    same(&["node"], "2", script);
}

/// A compiler in memory, a parallel collector, a server, and a child.
#[test]
fn java_collects_in_parallel() {
    let script = r#"
cat > T.java <<'END'
import java.util.*; import java.util.stream.*; import java.net.*; import java.io.*;
public class T { public static void main(String[] a) throws Exception {
 List<byte[]> keep=new ArrayList<>(); long sum=0;
 for (int i=0;i<20000;i++) { byte[] b=new byte[2000]; b[0]=(byte)i; sum+=b[0]; if (i%100==0) keep.add(b); }
 System.out.println(sum+" "+keep.size());
 System.out.println(IntStream.range(0,100000).parallel().filter(i->i%7==0).count());
 ServerSocket s=new ServerSocket(0,5,InetAddress.getLoopbackAddress());
 Thread t=new Thread(()->{ try (Socket c=s.accept()) { BufferedReader r=new BufferedReader(new InputStreamReader(c.getInputStream())); c.getOutputStream().write((r.readLine()+"!\n").getBytes()); } catch (Exception e) { e.printStackTrace(); } }); t.start();
 try (Socket c=new Socket(s.getInetAddress(), s.getLocalPort())) { c.getOutputStream().write("hi\n".getBytes()); System.out.println(new BufferedReader(new InputStreamReader(c.getInputStream())).readLine()); } t.join();
 Process p=new ProcessBuilder("sh","-c","echo child; exit 4").redirectErrorStream(true).start(); System.out.println(new String(p.getInputStream().readAllBytes()).trim()+" "+p.waitFor());
}}
END
java -XX:+UseParallelGC -XX:ParallelGCThreads=2 -Xmx64m T.java"#;
    same(&["java"], "2", script);
}

/// PostgreSQL runs as another user, because it refuses root. Its clients change tables at once, and the sums
/// agree.
#[test]
fn postgresql_runs_as_another_user() {
    let folder = "/usr/lib/postgresql";
    if !has(&["setpriv"]) || !Path::new(folder).is_dir() {
        return skip("PostgreSQL or setpriv is not installed here");
    }
    let script = r#"set -e; cd "$(mktemp -d)"; chown 65534:65534 .
        export PATH=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1):$PATH PGHOST=$PWD LC_ALL=C
        as() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
        as initdb -A trust -D data -U owner >/dev/null
        as pg_ctl -D data -l log -w -t 600 -o "-k $PWD -c listen_addresses=''" start >/dev/null
        as createdb -U owner bench; as pgbench -U owner -i -q bench 2>/dev/null
        as pgbench -U owner -n -c 2 -j 2 -t 25 bench | grep processed
        as psql -U owner -At bench -c "select count(*), sum(delta) = (select sum(abalance) from pgbench_accounts),
            sum(delta) = (select sum(tbalance) from pgbench_tellers) from pgbench_history"
        as pg_ctl -D data -w -t 600 stop >/dev/null; stat -c '%u %a' data"#;
    let run = run(&["-c", "2", "-m", "2G"], &["/bin/bash", "-c", script]);
    let expected = "number of transactions actually processed: 50/50\n50|t|t\n65534 700\n";
    assert_eq!((run.status, run.text().as_str()), (0, expected), "{run:?}");
}
