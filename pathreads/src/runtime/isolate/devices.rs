//! Devices that serve the address space which opens them, and no other: they are opened as without the
//! runtime, and a message says so.

use core::sync::atomic::{AtomicU32, Ordering};

use pathreads::refused::DEVICES;

use crate::sys::{self, harmless, nr};
use crate::user;

/// The bytes of a path that are looked at.
const LOOKED_AT: usize = 24;

/// The devices that a message was about, by their places in the list.
static SAID: AtomicU32 = AtomicU32::new(0);

/// Looks at a path that is about to be opened, and says once if it is such a device, and this program may
/// open it.
pub fn look(path: u64) {
    const READ_AND_WRITE: u64 = 6;
    let mut text = [0; LOOKED_AT];
    let length = user::read_text(path, &mut text);
    let names = |(device, _): &(&str, &str)| text[..length].starts_with(device.as_bytes());
    let Some(place) = DEVICES.iter().position(names) else { return };
    let is_said = SAID.load(Ordering::Relaxed) >> place & 1 != 0;
    if is_said || harmless!(nr::ACCESS, path, READ_AND_WRITE).is_err() {
        return;
    }
    SAID.fetch_or(1 << place, Ordering::Relaxed);
    let (device, what) = DEVICES[place];
    sys::say(&[
        b"pathreads: --isolate: ",
        what.as_bytes(),
        b" may not work, since ",
        device.as_bytes(),
        b" serves one thread's address space only\n",
    ]);
}
