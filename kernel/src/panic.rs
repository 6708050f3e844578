//! Panics of the kernel: they write one JSON line and end the machine.

use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::{arch, control};

/// The exit status of QEMU after a panic.
pub const EXIT_CODE: u8 = 0x7f;

static PANICKED: AtomicBool = AtomicBool::new(false);

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    arch::interrupts::disable();
    // Relaxed: only one core reports. A panic within a panic, or one on a second core, is not reported.
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
