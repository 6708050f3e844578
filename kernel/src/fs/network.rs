//! The network beyond the guest: one card, behind which QEMU plays a router. It is there only if the command
//! asked for it.
//!
//! ```text
//!   Stream ──▶ Link ──▶ pipes ◀──▶ Connection ──▶ socket of smoltcp ──▶ card      one lock, [`ENGINE`]
//!   Datagrams ─────────────────▶ messages ──────▶ raw socket of smoltcp ─┘
//! ```
//! A connection by the network is two pipes, as one within the guest is. The other ends of both are the
//! [`Connection`](connection::Connection)'s. It moves bytes between them and smoltcp, which speaks TCP.
//! Connections within the guest do not come here.
//!
//! | file | contents |
//! |---|---|
//! | `far` | what a socket and its connection share |
//! | `connection` | one connection: moving its bytes, its end |
//! | `engine` | the card, smoltcp and all connections |
//! | `card` | the card as smoltcp sees it |
//! | `packet` | the look at a packet before smoltcp gets it |
//! | `datagram` | messages as IP packets |
//!
//! 1. All work is done by the calls of sockets ([`serve`] after each), by the boot core when a packet has
//!    arrived, and by any core when a timer of TCP is due. One look takes a bounded number of packets, with
//!    the lock held. If packets are left, the core looks again on its way to user mode.
//! 2. Memory: [`engine::MOST`] connections, each with two pipes and [`engine::WINDOW`] bytes in each
//!    direction. Connections beyond are not answered (from outside) or fail with ENOBUFS. Allocations can
//!    fail: the peer sends again.
//! 3. Lock order: a socket's `setup` and `connecting`, the engine, then a list of addresses, the queue of a
//!    listener, a pipe, or an alarm. The socket's side never holds one of these while it comes here.

mod card;
mod connection;
mod datagram;
mod engine;
mod far;
mod packet;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

use abi::Errno;
use sync::{SetOnce, SpinLock};

pub use engine::MOST_MESSAGE;
pub use far::Far;

use super::socket::Address;
use crate::arch::{self, Card};
use crate::mm::fallible;
use crate::sched::{self, Alarm, Ring, attention};
use crate::{control, options};
use engine::Engine;

/// The guest's address, which QEMU's router expects.
pub const OWN: [u8; 4] = [10, 0, 2, 15];
const ROUTER: [u8; 4] = [10, 0, 2, 2];

/// The time that the end of the machine waits for what was sent to arrive.
const LAST_NS: u64 = 2_000_000_000;

/// Set at boot if there is a network.
static ENGINE: SetOnce<SpinLock<Engine>> = SetOnce::new();
/// Connections that wait for room at a listener. They get it by [`accepted`].
static CROWDED: AtomicUsize = AtomicUsize::new(0);

/// Sets the network up, if the command line asks for it. Called on the boot core, while no other core runs.
/// Needs the heap, the clock and random numbers.
pub fn init() {
    if !options::get().network {
        return;
    }
    let engine = Card::open().ok_or(Errno::ENODEV).and_then(|card| {
        let timer = fallible::arc(Alarm::new(Timer))?;
        Engine::new(card, timer, arch::random_u64())
    });
    match engine {
        Ok(engine) => ENGINE.set(SpinLock::new(engine)),
        Err(error) => control::warn(format_args!("there is no network: {error}")),
    }
}

/// Returns whether there is a network.
pub fn is_up() -> bool {
    ENGINE.get().is_some()
}

/// Looks at the network: takes packets that have arrived, moves bytes, sends what can be sent.
pub fn serve() {
    let Some(engine) = ENGINE.get() else { return };
    if engine.lock().run() {
        attention::raise(attention::NETWORK);
    }
}

/// Begins a connection to `peer`, from `local` if it is an address of the network, or from its port alone.
///
/// # Errors
/// ENETUNREACH if the command does not let connections out, EADDRNOTAVAIL if there is such a connection,
/// ENOBUFS, ENOMEM.
pub fn connect(local: &Address, peer: &Address) -> Result<Arc<Far>, Errno> {
    let engine = ENGINE.get().filter(|_| options::get().network_out).ok_or(Errno::ENETUNREACH)?;
    let far = engine.lock().connect(local, peer)?;
    serve();
    Ok(far)
}

/// Sends a message of at most [`MOST_MESSAGE`] bytes. As on any network, it may be lost.
pub fn send_message(from: &Address, to: &Address, pages: &[alloc::vec::Vec<u8>]) {
    if let Some(engine) = ENGINE.get() {
        engine.lock().send_message(from, to, pages);
        serve();
    }
}

/// Tells the network that a listener has room again.
pub fn accepted() {
    if CROWDED.load(Ordering::Relaxed) > 0 {
        serve();
    }
}

/// Waits until what was sent has arrived, for a bounded time, and drops all connections. All sockets are
/// closed, and the machine is about to end.
pub fn finish() {
    let Some(engine) = ENGINE.get() else { return };
    let deadline = arch::now_ns() + LAST_NS;
    while engine.lock().has_unsent() && arch::now_ns() < deadline {
        serve();
        sched::give_way();
        percore::relax();
    }
    engine.lock().drop_all();
}

/// The action of TCP's timer: a look at the network.
struct Timer;

impl Ring for Timer {
    fn ring(&self, _count: u64) {
        if let Some(engine) = ENGINE.get() {
            engine.lock().timer_has_rung();
        }
        serve();
    }
}
