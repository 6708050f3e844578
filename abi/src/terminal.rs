//! Terminals (`ioctl_tty(2)`, `termios(3)`).

use crate::{constants, plain};

constants! { u64:
    TCGETS = 0x5401, "Get the attributes.";
    TCSETS = 0x5402, "Set the attributes.";
    TCSETSW = 0x5403, "The same when all output is out.";
    TCSETSF = 0x5404, "The same, and drop the input.";
    TCSBRK = 0x5409, "Wait until all output is out.";
    TCXONC = 0x540a, "Stop or start the output.";
    TCFLSH = 0x540b, "Drop input or output.";
    TIOCSCTTY = 0x540e, "Make it the controlling terminal.";
    TIOCGPGRP = 0x540f, "Get the foreground group.";
    TIOCSPGRP = 0x5410, "Set the foreground group.";
    TIOCOUTQ = 0x5411, "Bytes that are not out yet.";
    TIOCGWINSZ = 0x5413, "Get the size.";
    TIOCSWINSZ = 0x5414, "Set the size.";
    TIOCNOTTY = 0x5422, "Give up the controlling terminal.";
    TIOCGSID = 0x5429, "Get the session.";
    TIOCGPTPEER = 0x5441, "A master's: open its terminal.";
    TIOCGPTN = 0x8004_5430, "A master's: get the number of its terminal.";
    TIOCGPTLCK = 0x8004_5439, "A master's: whether its terminal is locked.";
    TIOCSPTLCK = 0x4004_5431, "A master's: lock or unlock its terminal.";
    TIOCSIG = 0x4004_5436, "A master's: send a signal to the foreground.";
    TCGETS2 = 0x802c_542a, "Get the attributes with speeds.";
    TCSETS2 = 0x402c_542b, "Set the attributes with speeds.";
    TCSETSW2 = 0x402c_542c, "The same when all output is out.";
    TCSETSF2 = 0x402c_542d, "The same, and drop the input.";

    TCIFLUSH = 0, "TCFLSH: the input.";
    TCOFLUSH = 1, "TCFLSH: the output.";
    TCIOFLUSH = 2, "TCFLSH: both.";
    TCOOFF = 0, "TCXONC: stop the output.";
    TCOON = 1, "TCXONC: start the output.";
    TCION = 3, "TCXONC: send STOP or START: the highest.";
}

constants! { u32:
    ISTRIP = 0o40, "Input: drop the eighth bit.";
    INLCR = 0o100, "Input: newline becomes return.";
    IGNCR = 0o200, "Input: drop returns.";
    ICRNL = 0o400, "Input: return becomes newline.";
    IXON = 0o2000, "Input: STOP and START stop and start the output.";
    IXANY = 0o4000, "Input: any byte starts the output.";
    IMAXBEL = 0o20000, "Input: ring the bell when it is full.";
    IUTF8 = 0o40000, "Input: characters are UTF-8.";

    OPOST = 0o1, "Output: process it.";
    ONLCR = 0o4, "Output: newline becomes return and newline.";
    OCRNL = 0o10, "Output: return becomes newline.";
    ONOCR = 0o20, "Output: no return in the first column.";
    ONLRET = 0o40, "Output: newline does what return does.";
    XTABS = 0o14000, "Output: tabs become spaces.";

    B38400 = 0o17, "38,400 bits a second.";
    CS8 = 0o60, "Eight bits a byte.";
    CREAD = 0o200, "The receiver works.";

    ISIG = 0o1, "INTR, QUIT and SUSP send signals.";
    ICANON = 0o2, "Input comes in lines.";
    ECHO = 0o10, "Show input.";
    ECHOE = 0o20, "ERASE erases what is shown.";
    ECHOK = 0o40, "KILL shows a newline.";
    ECHONL = 0o100, "Show newlines without ECHO.";
    NOFLSH = 0o200, "Signals drop no input.";
    TOSTOP = 0o400, "Output of the background stops its group.";
    ECHOCTL = 0o1000, "Show control characters as ^X.";
    ECHOKE = 0o4000, "KILL erases what is shown.";
    IEXTEN = 0o100_000, "WERASE, LNEXT and REPRINT work.";
}

/// The number of control characters.
pub const NCCS: usize = 19;

/// Indices of the control characters.
pub mod cc {
    /// Sends SIGINT.
    pub const VINTR: usize = 0;
    /// Sends SIGQUIT.
    pub const VQUIT: usize = 1;
    /// Erases a character.
    pub const VERASE: usize = 2;
    /// Erases the line.
    pub const VKILL: usize = 3;
    /// Ends the input.
    pub const VEOF: usize = 4;
    /// Tenths of a second to wait for bytes, without ICANON.
    pub const VTIME: usize = 5;
    /// Bytes to wait for, without ICANON.
    pub const VMIN: usize = 6;
    /// Starts the output.
    pub const VSTART: usize = 8;
    /// Stops the output.
    pub const VSTOP: usize = 9;
    /// Sends SIGTSTP.
    pub const VSUSP: usize = 10;
    /// Ends a line.
    pub const VEOL: usize = 11;
    /// Shows the line again.
    pub const VREPRINT: usize = 12;
    /// Erases a word.
    pub const VWERASE: usize = 14;
    /// Takes the next byte as it is.
    pub const VLNEXT: usize = 15;
    /// Ends a line, too.
    pub const VEOL2: usize = 16;
}

plain! {
    /// The kernel's `struct termios`.
    pub struct Termios {
        /// `I*`.
        pub input: u32,
        /// `O*`.
        pub output: u32,
        /// `B*`, `C*`.
        pub control: u32,
        /// `ECHO` and its neighbours.
        pub local: u32,
        /// The line discipline: 0.
        pub line: u8,
        /// The control characters, by the numbers in [`cc`].
        pub characters: [u8; 19],
    }

    /// The kernel's `struct termios2`.
    pub struct Termios2 {
        /// The attributes.
        pub termios: Termios,
        /// Bits a second of the input.
        pub input_speed: u32,
        /// Bits a second of the output.
        pub output_speed: u32,
    }

    /// `struct winsize`.
    #[derive(Default)]
    pub struct Winsize {
        /// Rows of characters.
        pub rows: u16,
        /// Columns.
        pub columns: u16,
        /// Width in pixels, or 0.
        pub width: u16,
        /// Height in pixels, or 0.
        pub height: u16,
    }
}

impl Termios {
    /// The attributes of a terminal that was just opened, as Linux has them.
    pub const DEFAULT: Self = Self {
        input: ICRNL | IXON,
        output: OPOST | ONLCR,
        control: B38400 | CS8 | CREAD,
        local: ISIG | ICANON | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE | IEXTEN,
        line: 0,
        characters: [3, 28, 127, 21, 4, 0, 1, 0, 17, 19, 26, 0, 18, 15, 23, 22, 0, 0, 0],
    };
}
