//! exit and exit_group.

use sync::atomic::Ordering;

use super::{Call, Outcome};
use crate::process::{Ending, exit_thread, ptrace};
use crate::sched::attention;

/// Ends the calling thread.
pub fn exit(call: &mut Call<'_>) -> Outcome {
    tell_tracer(call);
    let process = call.task.process();
    if call.task.tid() == process.pid() {
        // Relaxed: read after the last thread left the list of threads, under its lock.
        process.main_status.store(call.arg(0) as u8, Ordering::Relaxed);
    }
    exit_thread()
}

/// Ends the process.
pub fn exit_group(call: &mut Call<'_>) -> Outcome {
    tell_tracer(call);
    call.task.process().end(Ending::Status(call.arg(0) as u8));
    exit_thread()
}

fn tell_tracer(call: &mut Call<'_>) {
    if call.task.attention.has(attention::TRACED) {
        ptrace::at_exit(call.task, call.frame, (call.arg(0) as u32 & 0xff) << 8);
    }
}
