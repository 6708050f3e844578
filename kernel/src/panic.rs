//! The kernel's own failure: one JSON line, and the machine ends.

use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::{arch, control};

/// What QEMU's exit status tells of a panic.
pub const EXIT_CODE: u8 = 0x7f;

static PANICKED: AtomicBool = AtomicBool::new(false);

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    arch::interrupts::disable();
    // Relaxed: only one may win. A panic in a panic, or a second core's, has nothing to add.
    if !PANICKED.swap(true, Ordering::Relaxed) {
        arch::stop_other_cores();
        control::panic(format_args!("core {}: {info}", arch::core().index()));
        arch::exit(EXIT_CODE);
    }
    loop {
        arch::interrupts::disable();
        core::hint::spin_loop();
    }
}
