//! Three 16550 serial ports: the program's output, control, and the program's errors.

use core::sync::atomic::{AtomicBool, Ordering};

use super::cpu::{in8, out8};

/// A serial port by what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// COM1: the program's standard output, bytes as they are.
    Stdout,
    /// COM2: control lines out, the program's standard input in.
    Control,
    /// COM3: the program's standard error.
    Stderr,
}

const DATA: u16 = 0;
const INTERRUPTS: u16 = 1;
const FIFO: u16 = 2;
const LINE: u16 = 3;
const MODEM: u16 = 4;
const STATUS: u16 = 5;
const RECEIVED: u8 = 1;
const TRANSMIT_EMPTY: u8 = 1 << 5;
const TRANSMITTED: u8 = 1 << 6;
const FIFO_BYTES: usize = 16;

/// Ports that answered when they were set up. Writing to an absent one would wait for ever.
static PRESENT: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

impl Port {
    fn base(self) -> u16 {
        [0x3f8, 0x2f8, 0x3e8][self as usize]
    }

    fn read(self, register: u16) -> u8 {
        // SAFETY: a register of the serial ports, which only this module drives.
        unsafe { in8(self.base() + register) }
    }

    fn set(self, register: u16, value: u8) {
        // SAFETY: a register of the serial ports, which do no DMA.
        unsafe { out8(self.base() + register, value) }
    }

    fn set_up(self) {
        self.set(INTERRUPTS, 0);
        self.set(LINE, 0x80); // divisor latch
        self.set(DATA, 1); // 115200 baud
        self.set(INTERRUPTS, 0);
        self.set(LINE, 3); // 8 bits, no parity
        // Cleared, and interrupting at 14 bytes: QEMU hands over no more at once than that.
        self.set(FIFO, 0xc7);
        self.set(MODEM, 0x0b); // ready, and OUT2 lets interrupts through
        // Relaxed: set by the boot core before any other core runs.
        PRESENT[self as usize].store(self.read(STATUS) != 0xff, Ordering::Relaxed);
    }

    /// Sends the bytes, waiting for the port. Callers keep their bytes together by a lock of their own.
    pub fn write(self, bytes: &[u8]) {
        if !PRESENT[self as usize].load(Ordering::Relaxed) {
            return;
        }
        for chunk in bytes.chunks(FIFO_BYTES) {
            while self.read(STATUS) & TRANSMIT_EMPTY == 0 {
                core::hint::spin_loop();
            }
            chunk.iter().for_each(|&byte| self.set(DATA, byte));
        }
    }

    /// Waits until every byte is out.
    pub fn flush(self) {
        let present = PRESENT[self as usize].load(Ordering::Relaxed);
        while present && self.read(STATUS) & TRANSMITTED == 0 {
            core::hint::spin_loop();
        }
    }

    /// Returns a received byte, if there is one.
    pub fn try_read(self) -> Option<u8> {
        let present = PRESENT[self as usize].load(Ordering::Relaxed);
        (present && self.read(STATUS) & RECEIVED != 0).then(|| self.read(DATA))
    }

    /// Makes the port interrupt when a byte arrives.
    pub fn interrupt_on_receive(self) {
        self.set(INTERRUPTS, 1);
    }
}

const PORTS: [Port; 3] = [Port::Stdout, Port::Control, Port::Stderr];

/// Sets all three ports up.
pub fn init() {
    PORTS.into_iter().for_each(Port::set_up);
}

/// Waits until all three ports have sent everything, because the machine ends.
pub(super) fn flush() {
    PORTS.into_iter().for_each(Port::flush);
}
