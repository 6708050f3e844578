//! Serves requests by WebAssembly, as a host of functions does. For each request a module is instantiated,
//! called once, and dropped. The threads share the engine and the module, and nothing else.
//!
//! `radixvm-wasm [--threads N] [--requests N] [--pages N] [--memory N] [--data N]
//! [--allocator on-demand|pooling|small]` prints the sum of all results, which does not depend on the number
//! of threads, and requests per second.

use std::process::exit;
use std::time::Instant;

use wasmtime::{
    Config, Engine, InstanceAllocationStrategy, InstancePre, Linker, Module, PoolingAllocationConfig, Store,
};

/// Writes to `$pages` pages of 4 KiB, and adds up what it finds there.
const MODULE: &str = r#"(module
  (memory (export "memory") MEMORY)
  (data (i32.const 4) "DATA")
  (func (export "handle") (param $request i32) (param $pages i32) (result i32)
    (local $at i32) (local $sum i32)
    (loop $next
      (i32.store (local.get $at) (i32.add (local.get $request) (local.get $at)))
      (local.set $sum (i32.add (local.get $sum) (i32.load (local.get $at))))
      (local.set $at (i32.add (local.get $at) (i32.const 4096)))
      (br_if $next (i32.lt_u (local.get $at) (i32.mul (local.get $pages) (i32.const 4096)))))
    (local.get $sum)))"#;

/// The arguments.
struct Arguments {
    threads: u32,
    requests: u32,
    /// Pages of 4 KiB that a request writes to.
    pages: u32,
    /// The memory of a module, in pages of 64 KiB.
    memory: u32,
    /// The bytes of the module's own data. A memory begins with these.
    data: u32,
    allocator: String,
}

fn usage() -> ! {
    eprintln!(
        "usage: radixvm-wasm [--threads N] [--requests N] [--pages N] [--memory N] [--data N] [--allocator on-demand|pooling|small]"
    );
    exit(2)
}

fn arguments() -> Arguments {
    let mut arguments = Arguments {
        threads: 1,
        requests: 20_000,
        pages: 16,
        memory: 4,
        data: 0,
        allocator: "on-demand".to_owned(),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let Some(value) = words.next() else { usage() };
        let number = || value.parse().ok().filter(|number| (1..=100_000_000).contains(number));
        match word.as_str() {
            "--threads" => arguments.threads = number().unwrap_or_else(|| usage()),
            "--requests" => arguments.requests = number().unwrap_or_else(|| usage()),
            "--pages" => arguments.pages = number().unwrap_or_else(|| usage()),
            "--memory" => arguments.memory = number().unwrap_or_else(|| usage()),
            "--data" => arguments.data = number().unwrap_or_else(|| usage()),
            "--allocator" => arguments.allocator = value,
            _ => usage(),
        }
    }
    if arguments.pages > 16 * arguments.memory || arguments.data >= 65_536 * arguments.memory - 4 {
        usage();
    }
    arguments
}

/// Returns an engine whose memories are allocated in one of three ways: each by a mapping of 4 GiB of
/// addresses (wasmtime's usual one), from a pool that is mapped at the start, or each by a mapping of its
/// size.
fn engine(arguments: &Arguments) -> wasmtime::Result<Engine> {
    let mut config = Config::new();
    match arguments.allocator.as_str() {
        "on-demand" => {}
        "small" => {
            config.memory_reservation(0).memory_guard_size(0).memory_reservation_for_growth(0);
        }
        "pooling" => {
            let mut pool = PoolingAllocationConfig::default();
            pool.total_memories(4 * arguments.threads).total_core_instances(4 * arguments.threads);
            config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
        }
        _ => usage(),
    }
    Engine::new(&config)
}

/// Serves the requests of one thread. Returns the sum of the results.
fn serve(
    engine: &Engine,
    module: &InstancePre<()>,
    requests: std::ops::Range<u32>,
    pages: u32,
) -> wasmtime::Result<u64> {
    let mut sum = 0;
    for request in requests {
        let mut store = Store::new(engine, ());
        let instance = module.instantiate(&mut store)?;
        let handle = instance.get_typed_func::<(u32, u32), u32>(&mut store, "handle")?;
        sum += u64::from(handle.call(&mut store, (request, pages))?);
    }
    Ok(sum)
}

fn main() -> wasmtime::Result<()> {
    let arguments = arguments();
    let Arguments { threads, requests, pages, memory, .. } = arguments;
    let engine = engine(&arguments)?;
    let data = "x".repeat(arguments.data as usize);
    let module = Module::new(&engine, MODULE.replace("MEMORY", &memory.to_string()).replace("DATA", &data))?;
    let module = Linker::new(&engine).instantiate_pre(&module)?;
    let start = Instant::now();
    let part = |thread: u32| (u64::from(requests) * u64::from(thread) / u64::from(threads)) as u32;
    let sum = std::thread::scope(|scope| {
        let made: Vec<_> = (0..threads)
            .map(|thread| {
                let (engine, module) = (&engine, &module);
                scope.spawn(move || serve(engine, module, part(thread)..part(thread + 1), pages))
            })
            .collect();
        made.into_iter().map(|thread| thread.join().expect("no thread panics")).sum::<wasmtime::Result<u64>>()
    })?;
    println!("{sum}");
    eprintln!("{:.0} requests/s", f64::from(requests) / start.elapsed().as_secs_f64());
    Ok(())
}
