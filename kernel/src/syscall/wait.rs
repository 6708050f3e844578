//! wait4, waitid.

use abi::Errno;
use abi::process::{
    P_ALL, P_PGID, P_PID, P_PIDFD, WALL, WCLONE, WCONTINUED, WEXITED, WNOHANG, WNOTHREAD, WNOWAIT, WSTOPPED,
    WUNTRACED,
};
use abi::signal::{SIGCHLD, Siginfo};

use super::usage::rusage;
use super::{Call, Outcome};
use crate::mm::user;
use crate::process::signal::{self, Origin};
use crate::process::{Found, Kind, Wanted, Who, pidfd};

/// The options that select kinds of children.
const KINDS: u32 = WALL | WCLONE | WNOTHREAD;

fn kind(options: u32) -> Kind {
    match options {
        _ if options & WALL != 0 => Kind::Any,
        _ if options & WCLONE != 0 => Kind::Clone,
        _ => Kind::Usual,
    }
}

/// Waits for a child that ends, or, if the options say so, stops or continues.
pub fn wait4(call: &mut Call<'_>) -> Outcome {
    let options = call.arg(2) as u32;
    if options & !(WNOHANG | WUNTRACED | WCONTINUED | KINDS) != 0 {
        return Err(Errno::EINVAL);
    }
    let who = match call.int(0) {
        // It has no positive counterpart.
        i32::MIN => return Err(Errno::ESRCH),
        -1 => Who::Any,
        0 => Who::Group(call.task.process().group()),
        pid @ 1.. => Who::Process(pid as u32),
        group => Who::Group(group.unsigned_abs()),
    };
    let wanted = Wanted {
        who,
        kind: kind(options),
        ended: true,
        stopped: options & WUNTRACED != 0,
        continued: options & WCONTINUED != 0,
        stay: false,
    };
    let found = call.task.process().wait_for(&wanted, options & WNOHANG == 0)?;
    let Some(found) = found else { return Ok(0) };
    if call.arg(1) != 0 {
        user::write(call.arg(1), &found.state.wait_status())?;
    }
    if call.arg(3) != 0 {
        user::write(call.arg(3), &rusage(&found.usage))?;
    }
    Ok(found.pid.into())
}

/// Waits for the events in the options, and may leave the child to be waited for again.
pub fn waitid(call: &mut Call<'_>) -> Outcome {
    let (options, events) = (call.arg(3) as u32, WEXITED | WSTOPPED | WCONTINUED);
    if options & !(WNOHANG | WNOWAIT | events | KINDS) != 0 || options & events == 0 {
        return Err(Errno::EINVAL);
    }
    let wanted = Wanted {
        who: who(call)?,
        kind: kind(options),
        ended: options & WEXITED != 0,
        stopped: options & WSTOPPED != 0,
        continued: options & WCONTINUED != 0,
        stay: options & WNOWAIT != 0,
    };
    let found = call.task.process().wait_for(&wanted, options & WNOHANG == 0)?;
    if let (Some(found), true) = (&found, call.arg(4) != 0) {
        user::write(call.arg(4), &rusage(&found.usage))?;
    }
    if call.arg(2) != 0 {
        write_info(call.arg(2), found.as_ref())?;
    }
    Ok(0)
}

fn who(call: &Call<'_>) -> Result<Who, Errno> {
    match (call.int(0), call.int(1)) {
        (P_ALL, _) => Ok(Who::Any),
        (P_PID, pid @ 1..) => Ok(Who::Process(pid as u32)),
        (P_PGID, 0) => Ok(Who::Group(call.task.process().group())),
        (P_PGID, group @ 1..) => Ok(Who::Group(group as u32)),
        (P_PIDFD, fd @ 0..) => {
            pidfd::process(&*call.files().get(fd)?).map(|process| Who::Process(process.pid()))
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Writes the `siginfo_t` of the child, or zeroes if there is none. Only its head is written, as on Linux.
fn write_info(at: u64, found: Option<&Found>) -> Result<(), Errno> {
    const WRITTEN: usize = 32;
    let origin = |found: &Found| Origin::of_child(found.pid, found.user, found.state);
    let info = found.map(|found| signal::info(SIGCHLD, origin(found)));
    let bytes: [u8; size_of::<Siginfo>()] = info.map_or([0; _], |info| abi::zerocopy::transmute!(info));
    user::copy_out(at, &bytes[..WRITTEN])
}
