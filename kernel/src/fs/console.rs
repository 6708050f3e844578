//! Standard input, output and error: the three serial ports.
//!
//! Output goes straight to its port, one writer at a time, so that the bytes of a chunk stay together.
//!
//! Input arrives on the control port in frames, `u16 length, bytes`, little-endian. An empty frame is the
//! end. The host sends one frame for each request, and the kernel requests one when a reader finds nothing.
//! So a program takes no more of the host's input than it wants, and none of it is lost. An interrupt tells
//! that bytes have arrived ([`on_input`]). The waiting thread, not the interrupt, reads the port.
//!
//! To a program all three look like pipes. If the host's end is a terminal (`tty=ROWSxCOLUMNS`), the room
//! above shows one instead. It takes the input from here, which comes unasked then, and a frame of the length
//! 65,535 is the terminal's new size, two numbers of two bytes.

use core::sync::atomic::{AtomicBool, Ordering};

use abi::Errno;
use abi::file::{POLLHUP, POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM, S_IFIFO};
use sync::{CachePadded, SpinLock};

use super::content::{Content, WriteAt};
use super::node::{Node, NodeRef, Volume};
use super::readiness;
use crate::arch::uart::Port;
use crate::bytes::{after, after_mut, copy_prefix, prefix};
use crate::control;
use crate::sched::{WaitQueue, attention};

static STDOUT: OutputLock = OutputLock::new();
static STDERR: OutputLock = OutputLock::new();
static STDIN: SpinLock<Input> = SpinLock::new(Input::new());
/// Set when the input has ended and all of it is read. Relaxed: it never becomes false again. Every C and
/// Rust program polls its input when it starts. From then on they only read this word.
static DRAINED: CachePadded<AtomicBool> = CachePadded::new(AtomicBool::new(false));
static READERS: WaitQueue = WaitQueue::new();

/// Bytes that are buffered for `poll` and `FIONREAD`.
const BUFFER_BYTES: usize = 512;

/// Reads of the port's status register for the next byte of a frame.
const BYTE_TRIES: u32 = 64;

/// The length of a frame that is the size of the host's terminal, and the bytes that it has.
const SIZE_FRAME: u16 = u16::MAX;
const SIZE_BYTES: u16 = 4;

/// The bytes that arrived and were not read yet.
struct Input {
    bytes: [u8; BUFFER_BYTES],
    start: usize,
    len: usize,
    /// The first byte of a frame's length, until the second arrives.
    half: Option<u8>,
    /// The bytes that the current frame still has.
    left: u16,
    /// Set while a requested frame is not complete.
    requested: bool,
    ended: bool,
    /// Set if frames come without a request.
    unasked: bool,
    /// Set while the current frame is a size, of which the last bytes are kept.
    is_size: bool,
    size: [u8; SIZE_BYTES as usize],
    /// A size that was not taken yet.
    new_size: Option<(u16, u16)>,
    /// Set when bytes came or went, until [`with_input`] wakes the readers.
    moved: bool,
}

impl Input {
    const fn new() -> Self {
        Self {
            bytes: [0; BUFFER_BYTES],
            start: 0,
            len: 0,
            half: None,
            left: 0,
            requested: false,
            ended: false,
            unasked: false,
            is_size: false,
            size: [0; SIZE_BYTES as usize],
            new_size: None,
            moved: false,
        }
    }

    /// Takes the bytes that the port has, as far as there is room, and requests a frame if there are none.
    fn receive(&mut self) {
        while self.requested && self.len < BUFFER_BYTES {
            let Some(byte) = self.next_byte() else { break };
            self.accept(byte);
        }
        if self.len == 0 && !self.requested && !self.ended {
            self.requested = true;
            control::request_input();
        }
    }

    /// Returns the next byte of the port, if there is one. Within a frame it is on its way, and polling for
    /// it a few times saves a sleep.
    fn next_byte(&self) -> Option<u8> {
        let tries = if self.left > 0 { BYTE_TRIES } else { 1 };
        (0..tries).find_map(|_| Port::Control.try_read())
    }

    fn accept(&mut self, byte: u8) {
        self.moved = true;
        if self.left > 0 {
            self.left -= 1;
            self.requested = self.left > 0 || self.unasked;
            if self.is_size {
                self.accept_size(byte);
            } else if let Some(place) = self.bytes.get_mut((self.start + self.len) % BUFFER_BYTES) {
                *place = byte;
                self.len += 1;
            }
            return;
        }
        match self.half.take() {
            None => self.half = Some(byte),
            Some(low) => {
                let length = u16::from_le_bytes([low, byte]);
                self.is_size = length == SIZE_FRAME;
                self.left = if self.is_size { SIZE_BYTES } else { length };
                self.ended = self.left == 0;
                self.requested = !self.ended;
            }
        }
    }

    fn accept_size(&mut self, byte: u8) {
        let [_, a, b, c] = self.size;
        self.size = [a, b, c, byte];
        if self.left == 0 {
            self.new_size = Some((u16::from_le_bytes([a, b]), u16::from_le_bytes([c, byte])));
        }
    }

    fn next_event(&mut self) -> Option<Event> {
        self.receive();
        if let Some((rows, columns)) = self.new_size.take() {
            return Some(Event::Size(rows, columns));
        }
        let mut byte = [0];
        match self.take(&mut byte) {
            None => None,
            Some(0) if !core::mem::take(&mut self.unasked) => None,
            Some(0) => Some(Event::End),
            Some(_) => Some(Event::Byte(byte[0])),
        }
    }

    /// Takes bytes. Returns `None` if none have arrived, and `Some(0)` at the end.
    fn take(&mut self, into: &mut [u8]) -> Option<usize> {
        let mut done = 0;
        while done < into.len() {
            self.receive();
            if self.len == 0 {
                break;
            }
            let bytes = self.len.min(BUFFER_BYTES - self.start).min(into.len() - done);
            copy_prefix(after_mut(into, done), prefix(after(&self.bytes, self.start), bytes as u64));
            (self.start, self.len) = ((self.start + bytes) % BUFFER_BYTES, self.len - bytes);
            done += bytes;
            self.moved = true;
        }
        (done > 0 || self.ended || into.is_empty()).then_some(done)
    }
}

/// A thing that the host's terminal sends.
pub enum Event {
    /// A byte.
    Byte(u8),
    /// Its size has changed to these rows and columns.
    Size(u16, u16),
    /// It is gone. This comes once.
    End,
}

/// Takes input from now on as it comes, by [`next_event`]. One request tells the host that it may send.
pub fn expect_all() {
    let mut input = STDIN.lock();
    (input.unasked, input.requested) = (true, true);
    drop(input);
    control::request_input();
}

/// Returns the next thing that the host's terminal has sent, if it has arrived.
pub fn next_event() -> Option<Event> {
    STDIN.lock().next_event()
}

/// Writes bytes to the host's terminal. The caller's lock keeps them together.
pub fn show(bytes: &[u8]) {
    Port::Stdout.write(bytes);
}

/// Notes that bytes arrived. Called by the interrupt handler, with interrupts off.
pub fn on_input() {
    attention::raise(attention::INPUT);
}

/// Wakes the readers. Called soon after [`on_input`], outside the interrupt.
pub fn input_arrived() {
    READERS.wake_all();
    readiness::changed();
}

/// Calls `f` with the input, and wakes the readers if bytes came or went. A reader may have taken bytes from
/// the port for others, for which no interrupt will come. If it took the last bytes, another reader must
/// request the next frame.
fn with_input<R>(f: impl FnOnce(&mut Input) -> R) -> R {
    let mut input = STDIN.lock();
    let result = f(&mut input);
    let moved = core::mem::take(&mut input.moved);
    if moved && input.ended && input.len == 0 {
        DRAINED.store(true, Ordering::Relaxed);
    }
    drop(input);
    if moved {
        input_arrived();
    }
    result
}

/// Returns the nodes of descriptors 0, 1 and 2.
pub fn nodes() -> Result<[NodeRef; 3], Errno> {
    Ok([
        Node::file(Volume::System, 0o400, Stdin)?,
        Node::file(Volume::System, 0o200, Output(Port::Stdout, &STDOUT))?,
        Node::file(Volume::System, 0o200, Output(Port::Stderr, &STDERR))?,
    ])
}

struct Stdin;

impl Content for Stdin {
    fn kind(&self) -> u32 {
        S_IFIFO
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn read(&self, _at: u64, into: &mut [u8], wait: bool) -> Result<usize, Errno> {
        let mut take = || with_input(|input| input.take(into));
        match take() {
            Some(len) => Ok(len),
            None if wait => READERS.wait_until(take),
            None => Err(Errno::EAGAIN),
        }
    }

    fn ready(&self) -> i16 {
        if DRAINED.load(Ordering::Relaxed) {
            return POLLHUP;
        }
        with_input(|input| {
            input.receive();
            let bytes = if input.len > 0 { POLLIN | POLLRDNORM } else { 0 };
            bytes | if input.ended { POLLHUP } else { 0 }
        })
    }

    fn waiting(&self, _at: u64) -> u64 {
        with_input(|input| {
            input.receive();
            input.len as u64
        })
    }
}

/// The lock of an output port. Writing is slow, so other writers sleep.
struct OutputLock {
    held: SpinLock<()>,
    writers: WaitQueue,
}

impl OutputLock {
    const fn new() -> Self {
        Self { held: SpinLock::new(()), writers: WaitQueue::new() }
    }
}

struct Output(Port, &'static OutputLock);

impl Content for Output {
    fn kind(&self) -> u32 {
        S_IFIFO
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn write(&self, _at: WriteAt, from: &[u8], _wait: bool) -> Result<usize, Errno> {
        let Self(port, lock) = self;
        let guard = lock.writers.wait_until(|| lock.held.try_lock())?;
        port.write(from);
        drop(guard);
        lock.writers.wake_all();
        Ok(from.len())
    }

    fn ready(&self) -> i16 {
        POLLOUT | POLLWRNORM
    }
}
