// Workers that share memory: locks and a turn that goes round by Atomics.wait, messages with memory that is
// handed over, errors, and garbage. Its output does not depend on the order in which workers run.

const { Worker, isMainThread, parentPort, workerData, MessageChannel, receiveMessageOnPort } =
    require('worker_threads');
const crypto = require('crypto');

const WORKERS = 3;
const LOCK = 0, SUM = 1, TURN = 2, TURNS = 3, READY = 4;

function lock(words) {
    while (Atomics.compareExchange(words, LOCK, 0, 1) !== 0) Atomics.wait(words, LOCK, 1);
}

function unlock(words) {
    Atomics.store(words, LOCK, 0);
    Atomics.notify(words, LOCK, 1);
}

// Hot enough to be compiled, by another thread of the engine.
function mix(sum, number) {
    for (let i = 0; i < 50; i++) sum = (Math.imul(sum ^ number, 0x01000193) + i) >>> 0;
    return sum;
}

function work({ me, memory }) {
    const words = new Int32Array(memory);
    if (me === WORKERS) throw new Error('a worker fails');
    // All go on when the first thread says so.
    Atomics.wait(words, READY, 0);
    for (let i = 0; i < 500; i++) {
        lock(words);
        words[SUM] = words[SUM] + me + 1;
        unlock(words);
    }
    for (let i = 0; i < 50; i++) {
        for (let turn; (turn = Atomics.load(words, TURN)) % WORKERS !== me;) Atomics.wait(words, TURN, turn);
        words[TURNS] = Math.imul(words[TURNS], 31) + me;
        Atomics.add(words, TURN, 1);
        Atomics.notify(words, TURN);
    }
    let sum = me;
    let kept = [];
    for (let i = 0; i < 20000; i++) {
        sum = mix(sum, i);
        kept.push({ text: 'x' + (i % 100), list: [i, sum] });
        if (kept.length > 2000) kept = kept.slice(1000);
    }
    const bytes = new Uint8Array(300000).fill(me + 1);
    parentPort.on('message', ({ bytes, port }) => {
        port.postMessage(crypto.createHash('sha256').update(bytes).digest('hex'));
        port.close();
        parentPort.close();
    });
    parentPort.postMessage({ me, sum, kept: kept.length, bytes }, [bytes.buffer]);
}

async function main() {
    const memory = new SharedArrayBuffer(1024);
    const words = new Int32Array(memory);
    const start = (me) => new Promise((resolve) => {
        const worker = new Worker(__filename, { workerData: { me, memory } });
        let error = 'none';
        // The answer comes by a port of its own, before or after the worker's end.
        let answer = Promise.resolve('none');
        worker.on('error', (thrown) => error = thrown.message);
        worker.on('exit', async (code) =>
            resolve(`worker ${me} ends with ${code}, error ${error}, answer ${await answer}`));
        worker.on('message', ({ sum, kept, bytes }) => {
            const { port1, port2 } = new MessageChannel();
            const { length } = bytes;
            answer = new Promise((heard) =>
                port1.on('message', (hash) => heard(`${sum} ${kept} ${length} ${hash}`)));
            worker.postMessage({ bytes, port: port2 }, [port2, bytes.buffer]);
        });
    });
    const ends = Array.from({ length: WORKERS + 1 }, (_, me) => start(me));
    Atomics.store(words, READY, 1);
    Atomics.notify(words, READY);
    const hashes = Promise.all(Array.from({ length: 8 }, (_, i) => new Promise((resolve, reject) =>
        crypto.pbkdf2('word', 'salt' + i, 1000, 16, 'sha256', (error, key) =>
            error ? reject(error) : resolve(key.toString('hex'))))));
    for (const end of await Promise.all(ends)) console.log(end);
    for (const hash of await hashes) console.log(hash);
    console.log(words[SUM], words[TURN], words[TURNS]);

    const { port1, port2 } = new MessageChannel();
    port1.postMessage({ hello: [1, 2, 3] });
    console.log(JSON.stringify(receiveMessageOnPort(port2)));
    port1.close();

    // A worker that never ends by itself.
    const busy = new Worker('require("worker_threads").parentPort.postMessage(1); for (;;);', { eval: true });
    await new Promise((resolve) => busy.once('message', resolve));
    console.log('terminated with', await busy.terminate());
}

if (isMainThread) main();
else work(workerData);
