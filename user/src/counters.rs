//! Counters of the kernel, read before and after the measured window.
//!
//! RadixVM's `/proc/radixvm/counters` has lines `name total core0 core1 ...`. On Linux the rows of
//! `/proc/interrupts` about remote work are read, summed over the CPUs: TLB shootdowns received, function
//! calls received (TLB shootdowns among them), timer interrupts.
//!
//! Reading must not disturb the measurement: buffers are allocated and touched beforehand, and text is parsed
//! after the window.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

const OURS: &str = "/proc/radixvm/counters";
const LINUX: &str = "/proc/interrupts";
/// Room for the interrupts of 256 CPUs.
const ROOM: usize = 512 << 10;

/// Names and values. Some, such as frames in use, also go down.
pub type Counters = BTreeMap<String, i64>;

/// One reading, still as text.
pub struct Reading {
    text: Vec<u8>,
    length: usize,
    parse: Parse,
}

type Parse = fn(&str) -> Counters;

impl Reading {
    /// Prepares room for the text of [`Reading::take`].
    pub fn prepare() -> Reading {
        Reading { text: vec![b'\n'; ROOM], length: 0, parse: parse_ours }
    }

    /// Reads the counters now. The file is opened now too: its text may be as old as that.
    pub fn take(&mut self) {
        let ours = File::open(OURS).map(|file| (file, parse_ours as Parse));
        let source = ours.or_else(|_| File::open(LINUX).map(|file| (file, parse_linux as Parse)));
        let Ok((mut file, parse)) = source else { return };
        self.parse = parse;
        while let Ok(count @ 1..) = file.read(&mut self.text[self.length..]) {
            self.length += count;
        }
    }

    /// Returns the changes between `earlier` and this reading, or `None` where the kernel offers no counters.
    pub fn since(&self, earlier: &Reading) -> Option<Counters> {
        (self.length > 0).then(|| difference(self.counters(), &earlier.counters()))
    }

    fn counters(&self) -> Counters {
        (self.parse)(&String::from_utf8_lossy(&self.text[..self.length]))
    }
}

fn difference(mut later: Counters, earlier: &Counters) -> Counters {
    for (name, value) in &mut later {
        *value -= earlier.get(name).copied().unwrap_or(0);
    }
    later
}

fn parse_ours(text: &str) -> Counters {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_string(), words.next()?.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

fn parse_linux(text: &str) -> Counters {
    let row = |line: &str| {
        let (label, numbers) = line.split_once(':')?;
        let name = match label.trim() {
            "TLB" => "tlb_shootdowns",
            "CAL" => "function_calls",
            "LOC" => "timer_interrupts",
            _ => return None,
        };
        let sum = numbers.split_whitespace().map_while(|word| word.parse::<i64>().ok()).sum();
        Some((name.to_string(), sum))
    };
    text.lines().filter_map(row).collect()
}

/// Returns the page faults of this process so far that needed no disk.
pub fn minor_faults() -> u64 {
    // SAFETY: an all-zero `rusage` is a valid one.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the call fills the structure it is given.
    let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    if result == 0 { usage.ru_minflt as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(pairs: &[(&str, i64)]) -> Counters {
        pairs.iter().map(|(name, value)| (name.to_string(), *value)).collect()
    }

    #[test]
    fn our_lines_give_the_total() {
        let text = "mmap 30 10 20\nipi_targets 0 0 0\nframes_used 5 9 -4\nbroken\n";
        assert_eq!(parse_ours(text), counters(&[("mmap", 30), ("ipi_targets", 0), ("frames_used", 5)]));
    }

    #[test]
    fn linux_rows_are_summed_over_the_cpus() {
        let text = "            CPU0       CPU1\n  0:  5  6  IO-APIC  2-edge  timer\n\
                    LOC:  100  200   Local timer interrupts\nTLB:  3  4   TLB shootdowns\n";
        assert_eq!(parse_linux(text), counters(&[("timer_interrupts", 300), ("tlb_shootdowns", 7)]));
    }

    #[test]
    fn counters_may_go_down_and_appear_later() {
        let (earlier, later) = (counters(&[("frames_used", 7)]), counters(&[("frames_used", 5), ("new", 2)]));
        assert_eq!(difference(later, &earlier), counters(&[("frames_used", -2), ("new", 2)]));
    }

    #[test]
    fn faults_are_counted() {
        let before = minor_faults();
        let mut region = crate::memory::Region::map(8).unwrap();
        region.write(1);
        region.unmap().unwrap();
        assert!(minor_faults() > before);
    }
}
