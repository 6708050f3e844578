//! Selects the usable CPUs of those that are listed.

use core::fmt;

/// Flag of a CPU's entry: it may be started.
const ENABLED: u32 = 1;

/// The APIC numbers to which interrupts can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Eight bits, of which the last number addresses all CPUs.
    XApic,
    /// 32 bits, of which the last number addresses all CPUs.
    X2Apic,
}

impl Reach {
    fn includes(self, id: u32) -> bool {
        id < match self {
            Self::XApic => 0xff,
            Self::X2Apic => u32::MAX,
        }
    }
}

/// The CPUs to use, the boot CPU first, each by its APIC number. There are at most `MAX`.
#[derive(Clone, Debug)]
pub struct Cpus<const MAX: usize> {
    ids: [u32; MAX],
    count: usize,
    reach: Reach,
    left_out: LeftOut,
}

/// Number of CPUs that are listed and not used, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// CPUs that the firmware says not to start.
    pub disabled: u32,
    /// CPUs to which no interrupt can be sent.
    pub unreachable: u32,
    /// CPUs for which there is no room.
    pub too_many: u32,
}

impl<const MAX: usize> Cpus<MAX> {
    /// Creates the list with only the CPU that runs.
    pub fn new(boot: u32, reach: Reach) -> Self {
        Self { ids: [boot; MAX], count: 1, reach, left_out: LeftOut::default() }
    }

    /// Adds a CPU as the firmware lists it. One that is listed twice counts once.
    pub fn add(&mut self, id: u32, flags: u32) {
        let left_out = &mut self.left_out;
        match () {
            () if self.ids[..self.count].contains(&id) => {}
            () if flags & ENABLED == 0 => left_out.disabled += 1,
            () if !self.reach.includes(id) => left_out.unreachable += 1,
            () if self.count == MAX => left_out.too_many += 1,
            () => {
                self.ids[self.count] = id;
                self.count += 1;
            }
        }
    }

    /// Returns their APIC numbers.
    pub fn ids(&self) -> &[u32] {
        &self.ids[..self.count]
    }

    /// Returns the number of other listed CPUs.
    pub fn left_out(&self) -> LeftOut {
        self.left_out
    }
}

impl LeftOut {
    /// Returns whether any CPU is left out.
    pub fn any(self) -> bool {
        self != Self::default()
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reasons = [
            (self.disabled, "the firmware disabled"),
            (self.unreachable, "no interrupt can reach"),
            (self.too_many, "there is no room for"),
        ];
        let mut between = "CPUs left out: ";
        for (count, reason) in reasons.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "{between}{count} that {reason}")?;
            between = ", ";
        }
        Ok(())
    }
}
