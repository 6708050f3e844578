//! The date, from the battery-backed clock.

use super::cpu::{in8, out8};

const SECONDS: u8 = 0;
const MINUTES: u8 = 2;
const HOURS: u8 = 4;
const DAY: u8 = 7;
const MONTH: u8 = 8;
const YEAR: u8 = 9;
const STATUS_A: u8 = 10;
const STATUS_B: u8 = 11;
const UPDATING: u8 = 1 << 7;
const BINARY: u8 = 1 << 2;
const HALF_DAYS: u8 = 1 << 1;
const AFTERNOON: u8 = 1 << 7;

fn read(register: u8) -> u8 {
    // SAFETY: selects and reads a clock register, which only the boot core does.
    unsafe {
        out8(0x70, register);
        in8(0x71)
    }
}

/// Reads the clock for the time that takes.
pub fn touch() {
    read(STATUS_A);
}

fn snapshot() -> [u8; 6] {
    while read(STATUS_A) & UPDATING != 0 {
        core::hint::spin_loop();
    }
    [SECONDS, MINUTES, HOURS, DAY, MONTH, YEAR].map(read)
}

/// Returns the seconds since 1970 by the clock (in UTC).
pub fn seconds() -> u64 {
    let mut fields = snapshot();
    loop {
        let again = snapshot();
        if again == fields {
            break;
        }
        fields = again;
    }
    let status = read(STATUS_B);
    let number =
        |value: u8| u64::from(if status & BINARY != 0 { value } else { (value >> 4) * 10 + (value & 15) });
    let [second, minute, hour, day, month, year] = fields;
    let (afternoon, hour) = (hour & AFTERNOON != 0, number(hour & !AFTERNOON));
    let hour = if status & HALF_DAYS != 0 { hour } else { hour % 12 + if afternoon { 12 } else { 0 } };
    days(2000 + number(year), number(month), number(day)) * 86_400
        + hour * 3600
        + number(minute) * 60
        + number(second)
}

/// Returns the days from 1970 to a date of the Gregorian calendar. Years begin in March here, so that the
/// leap day is the last.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let days_since_march = (153 * month + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + days_since_march - 719_468
}
