//! The host's ends of a guest's serial ports.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::SIGWINCH;
use signal_hook::iterator::Signals;

use crate::terminal;

/// The first descriptor number that QEMU inherits, for COM1. The next one is for COM2.
pub const FIRST_PORT: i32 = 3;

/// One serial port: the host's end and the end that QEMU inherits.
pub struct Channel {
    /// The host's end.
    pub host: UnixStream,
    /// QEMU's end.
    pub guest: OwnedFd,
}

/// Opens `count` channels.
pub fn open(count: usize) -> Result<Vec<Channel>> {
    let pair = || UnixStream::pair().map(|(host, guest)| Channel { host, guest: guest.into() });
    (0..count).map(|_| pair().context("cannot make a socket pair")).collect()
}

/// The destination of a program's output.
#[derive(Clone)]
pub enum Sink {
    /// This process's standard output.
    Stdout,
    /// This process's standard error.
    Stderr,
    /// A buffer, to be read later.
    Buffer(Arc<Mutex<Vec<u8>>>),
}

impl Sink {
    /// Creates a buffer.
    pub fn buffer() -> Self {
        Sink::Buffer(Arc::default())
    }

    /// Returns the contents of a buffer, or nothing for the others.
    pub fn take(&self) -> Vec<u8> {
        match self {
            Sink::Buffer(bytes) => std::mem::take(&mut bytes.lock().expect("no writer panics")),
            Sink::Stdout | Sink::Stderr => Vec::new(),
        }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            // Written straight to the descriptor, because Rust's own buffer would hold back an unfinished
            // line.
            Sink::Stdout => write_all(rustix::stdio::stdout(), bytes),
            Sink::Stderr => write_all(rustix::stdio::stderr(), bytes),
            Sink::Buffer(kept) => {
                kept.lock().expect("no reader panics").extend(bytes);
                Ok(())
            }
        }
    }
}

fn write_all(descriptor: impl std::os::fd::AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(&descriptor, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Copies the output of one port to a sink until QEMU is gone. `broken` is called once if the sink stops
/// taking bytes. The rest is then read and dropped, so that the guest does not block.
pub fn pump(
    mut from: UnixStream,
    to: Sink,
    broken: impl FnOnce(io::Error) + Send + 'static,
) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut broken = Some(broken);
        let mut chunk = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from.read(&mut chunk) {
            let Some(tell) = broken.take() else { continue };
            match to.write(&chunk[..length]) {
                Ok(()) => broken = Some(tell),
                Err(error) => tell(error),
            }
        }
    })
}

/// Answers every request with a frame of this process's standard input, or with an empty one if `open` is
/// false. A frame is a length of two bytes, little-endian, and then the bytes. Length 0 means end of file.
/// Nothing is read before it is requested. The thread is not joined at the end, because it may block in a
/// read for ever.
pub fn feed_stdin(mut to: UnixStream, open: bool) -> Sender<()> {
    let (sender, requests) = channel();
    thread::spawn(move || {
        let mut chunk = [0; 4096];
        for () in requests {
            let length = if open { read_stdin(&mut chunk) } else { 0 };
            if to.write_all(&frame(&chunk[..length])).is_err() {
                return;
            }
        }
    });
    sender
}

/// The byte of Ctrl-], and how often in a row it ends the run.
const ESCAPE: u8 = 0x1d;
const ESCAPES: usize = 3;

/// The length of a frame that is the terminal's size.
const SIZE_FRAME: u16 = u16::MAX;

/// Chunks of keys that wait for the guest. When there are more, the terminal rings, and the keys are dropped.
const CHUNKS: usize = 64;

/// Passes the terminal's size on, and its input as it comes, from the guest's first request on. Ctrl-] three
/// times in a row ends the run as SIGTERM does. The threads are not joined, as that of [`feed_stdin`].
pub fn feed_terminal(mut to: UnixStream) -> Result<Sender<()>> {
    let (sender, requests) = channel();
    let (frames, waiting) = sync_channel::<Vec<u8>>(CHUNKS);
    let (sizes, mut changes) = (frames.clone(), Signals::new([SIGWINCH]).context("cannot catch SIGWINCH")?);
    thread::spawn(move || {
        for _ in changes.forever() {
            let _ = sizes.send(size_frame());
        }
    });
    thread::spawn(move || {
        // The guest's port loses bytes before that.
        if requests.recv().is_ok() {
            let first = [size_frame()].into_iter();
            let _ = first.chain(waiting).try_for_each(|frame| to.write_all(&frame));
        }
    });
    thread::spawn(move || {
        let (mut chunk, mut escapes) = ([0; 4096], 0);
        loop {
            let length = read_stdin(&mut chunk);
            for byte in &chunk[..length] {
                escapes = if *byte == ESCAPE { escapes + 1 } else { 0 };
                if escapes == ESCAPES {
                    let _ = kill_process(getpid(), Signal::TERM);
                }
            }
            if length == 0 {
                let _ = frames.send(frame(&[]));
                return;
            }
            if frames.try_send(frame(&chunk[..length])).is_err() {
                let _ = write_all(rustix::stdio::stdout(), b"\x07");
            }
        }
    });
    Ok(sender)
}

/// Returns the frame of the terminal's size, or nothing if that is not known.
fn size_frame() -> Vec<u8> {
    let numbers = |(rows, columns)| [SIZE_FRAME, rows, columns].map(u16::to_le_bytes);
    terminal::size().map_or(Vec::new(), |size| numbers(size).concat())
}

/// Reads from standard input. Returns 0 at its end and when it cannot be read.
fn read_stdin(chunk: &mut [u8]) -> usize {
    loop {
        match rustix::io::read(rustix::stdio::stdin(), &mut *chunk) {
            Ok(length) => return length,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return 0,
        }
    }
}

fn frame(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("a chunk is 4096 bytes at most");
    [&length.to_le_bytes(), bytes].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_carry_their_length() {
        assert_eq!(frame(b"hi"), [2, 0, b'h', b'i']);
        assert_eq!(frame(&[0; 4096])[..2], [0, 16]);
        assert_eq!(frame(&[]), [0, 0]);
    }

    #[test]
    fn a_pump_ends_at_end_of_file_and_keeps_every_byte() {
        let Channel { host, guest } = open(1).unwrap().remove(0);
        let sink = Sink::buffer();
        let pump = pump(host, sink.clone(), |_| panic!("a buffer never breaks"));
        let mut guest = UnixStream::from(guest);
        guest.write_all(b"one\r\ntwo").unwrap();
        drop(guest);
        pump.join().unwrap();
        assert_eq!(sink.take(), b"one\r\ntwo");
    }
}
