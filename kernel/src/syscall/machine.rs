//! Properties of the machine: uname, personality, sysinfo, getcpu, random numbers, membarrier.

use abi::Errno;
use abi::memory::MEMBARRIER_CMD_QUERY;
use abi::process::{GRND_INSECURE, GRND_NONBLOCK, GRND_RANDOM, Sysinfo, Utsname};
use sync::atomic::Ordering;
use vm::PAGE_SIZE;

use super::{Call, Outcome};
use crate::arch;
use crate::bytes::{copy_prefix, prefix};
use crate::counters::Counter;
use crate::mm::statistics::sum;
use crate::mm::{frames, user};
use crate::sched::pause;

/// Returns a field of `uname`: the text, padded with zeroes.
fn field(text: &str) -> [u8; 65] {
    let mut field = [0; 65];
    copy_prefix(&mut field, text.as_bytes());
    field
}

/// Writes the system's name. It is Linux, because programs check it. The version names RadixVM.
pub fn uname(call: &mut Call<'_>) -> Outcome {
    let name = Utsname {
        system: field("Linux"),
        node: field("radixvm"),
        release: field("6.1.0"),
        version: field(concat!("RadixVM ", env!("CARGO_PKG_VERSION"))),
        machine: field("x86_64"),
        domain: field("(none)"),
    };
    user::write(call.arg(0), &name)?;
    Ok(0)
}

/// Sets the personality, unless it is -1, and returns the one before.
pub fn personality(call: &mut Call<'_>) -> Outcome {
    let (own, new) = (&call.task.thread.personality, call.arg(0) as u32);
    let old = own.load(Ordering::Relaxed);
    if new != u32::MAX {
        own.store(new, Ordering::Relaxed);
    }
    Ok(old.into())
}

/// Writes sizes of memory and the uptime.
pub fn sysinfo(call: &mut Call<'_>) -> Outcome {
    let stats = frames::stats();
    let info = Sysinfo {
        uptime: (arch::now_ns() / 1_000_000_000) as i64,
        total_ram: stats.total * PAGE_SIZE,
        free_ram: stats.free * PAGE_SIZE,
        processes: sum(Counter::Tasks) as u16,
        unit: 1,
        ..Sysinfo::default()
    };
    user::write(call.arg(0), &info)?;
    Ok(0)
}

/// Writes the number of the core, and node 0.
pub fn getcpu(call: &mut Call<'_>) -> Outcome {
    let words = [(call.arg(0), arch::core().index() as u32), (call.arg(1), 0)];
    words.into_iter().filter(|&(at, _)| at != 0).try_for_each(|(at, word)| user::write(at, &word))?;
    Ok(0)
}

/// Writes random bytes, up to Linux's limit or until a signal comes.
pub fn getrandom(call: &mut Call<'_>) -> Outcome {
    const MOST: u64 = (32 << 20) - 1;
    const CHUNK: usize = 256;
    if call.arg(2) & !(GRND_NONBLOCK | GRND_RANDOM | GRND_INSECURE) != 0 {
        return Err(Errno::EINVAL);
    }
    let (at, length) = (call.arg(0), call.arg(1).min(MOST));
    let mut done = 0;
    while done < length && pause() {
        let mut bytes = [0; CHUNK];
        arch::fill_random(&mut bytes);
        let bytes = prefix(&bytes, length - done);
        match user::copy_out(at.wrapping_add(done), bytes).and_then(|()| call.task.check_interrupted()) {
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
            Ok(()) => done += bytes.len() as u64,
        }
    }
    Ok(done)
}

/// Offers no command: a query returns 0.
pub fn membarrier(call: &mut Call<'_>) -> Outcome {
    if call.arg(0) == MEMBARRIER_CMD_QUERY && call.arg(1) == 0 { Ok(0) } else { Err(Errno::EINVAL) }
}
