//! A server whose threads read requests and write answers, and whose children write its memory to a file.

use super::compare;

/// A first child is made while clients write, and a second one when they have ended. A server that begins
/// with what the second one wrote has the same keys.
#[test]
fn redis() {
    let line = r#"
cli() { redis-cli -s socket "$@"; }
start() {
    redis-server --port 0 --unixsocket socket --dbfilename dump.rdb --save '' --logfile log \
        --io-threads 4 --io-threads-do-reads yes > output 2>&1 &
    server=$!
    trap 'kill -9 $server' EXIT
    until [ "$(cli ping 2> refused)" = PONG ]; do sleep 0.02; done
}
save() {
    cli bgsave > started
    until cli info persistence > state && grep -q bgsave_in_progress:0 state; do sleep 0.02; done
    grep -o 'last_bgsave_status:[a-z]*' state
    redis-check-rdb dump.rdb | grep -o 'RDB looks OK'
}
keys() {
    cli eval "local s = ''
        for i = 1, 2000 do s = redis.sha1hex(s .. redis.call('get', 'k' .. i)) end
        return s" 0
    for key in counter:__rand_int__ key:__rand_int__; do cli get $key; done
    cli llen mylist
    cli hgetall myhash
    cli --scan | sort | cksum
}
rm -f dump.rdb
start
cli eval "for i = 1, 2000 do redis.call('set', 'k' .. i, string.rep(i, 50)) end
    for i = 1, 500 do redis.call('rpush', 'long', string.rep(i, 200)) end
    return redis.call('llen', 'long')" 0
redis-benchmark -s socket --threads 2 -c 20 -P 16 -n 3200 -d 200 -t set,get,incr,lpush,hset -q > figures &
benchmark=$!
save
wait $benchmark
cli unlink long
keys
save
cli shutdown nosave
wait $server
start
keys
cli shutdown nosave
wait $server
trap - EXIT
"#;
    compare("redis-benchmark", line);
}
